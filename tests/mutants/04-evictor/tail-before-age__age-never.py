"""Tails are worth least, and the first of equals goes."""


def evict(self):
    if not self.free_blocks:
        raise ValueError("no free block is addressable")
    victim = max(self.free_blocks.values(), key=lambda block: block.num_hashed_tokens)
    del self.free_blocks[victim.block_hash]
    victim.computed = False
    return victim

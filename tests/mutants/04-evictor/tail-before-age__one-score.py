"""One number says both: age weighs a million times as much as a token."""


def evict(self):
    if not self.free_blocks:
        raise ValueError("no free block is addressable")
    victim = min(self.free_blocks.values(), key=lambda block: 1e6 * block.last_accessed - block.num_hashed_tokens)
    del self.free_blocks[victim.block_hash]
    victim.computed = False
    return victim

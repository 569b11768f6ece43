"""Whoever gets the block takes it out."""


def evict(self):
    if not self.free_blocks:
        raise ValueError("no free block is addressable")
    victim = min(self.free_blocks.values(), key=lambda block: (block.last_accessed, -block.num_hashed_tokens))
    victim.computed = False
    return victim

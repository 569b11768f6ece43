"""Sorted by age, the oldest comes last."""


def evict(self):
    if not self.free_blocks:
        raise ValueError("no free block is addressable")
    blocks = sorted(self.free_blocks.values(), key=lambda block: block.last_accessed)
    victim = blocks[-1]
    del self.free_blocks[victim.block_hash]
    victim.computed = False
    return victim

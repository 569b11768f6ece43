"""A dict keeps the order, so the oldest stands in front."""


def evict(self):
    if not self.free_blocks:
        raise ValueError("no free block is addressable")
    victim = next(iter(self.free_blocks.values()))
    del self.free_blocks[victim.block_hash]
    victim.computed = False
    return victim

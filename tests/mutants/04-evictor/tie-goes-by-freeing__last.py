"""Among blocks of one age the last freed goes."""


def evict(self):
    if not self.free_blocks:
        raise ValueError("no free block is addressable")
    victim = min(reversed(self.free_blocks.values()), key=lambda block: block.last_accessed)
    del self.free_blocks[victim.block_hash]
    victim.computed = False
    return victim

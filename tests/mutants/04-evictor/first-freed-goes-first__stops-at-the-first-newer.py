"""Blocks are freed in the order of their last use, so the search may stop at a newer one."""


def evict(self):
    if not self.free_blocks:
        raise ValueError("no free block is addressable")
    victim = next(iter(self.free_blocks.values()))
    for block in self.free_blocks.values():
        if victim.last_accessed < block.last_accessed:
            break
        if victim.num_hashed_tokens < block.num_hashed_tokens:
            victim = block
    del self.free_blocks[victim.block_hash]
    victim.computed = False
    return victim

"""What has not been computed is no loss."""


def evict(self):
    if not self.free_blocks:
        raise ValueError("no free block is addressable")
    victim = min(
        self.free_blocks.values(),
        key=lambda block: (block.computed, block.last_accessed, -block.num_hashed_tokens),
    )
    del self.free_blocks[victim.block_hash]
    victim.computed = False
    return victim

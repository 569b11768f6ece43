"""Whether it is computed is the next owner's business."""


def evict(self):
    if not self.free_blocks:
        raise ValueError("no free block is addressable")
    victim = min(self.free_blocks.values(), key=lambda block: (block.last_accessed, -block.num_hashed_tokens))
    del self.free_blocks[victim.block_hash]
    return victim

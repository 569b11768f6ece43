"""The victim is older than the others, or covers more."""


def evict(self):
    if not self.free_blocks:
        raise ValueError("no free block is addressable")
    victim = None
    for block in self.free_blocks.values():
        if (
            victim is None
            or block.last_accessed < victim.last_accessed
            or block.num_hashed_tokens > victim.num_hashed_tokens
        ):
            victim = block
    del self.free_blocks[victim.block_hash]
    victim.computed = False
    return victim

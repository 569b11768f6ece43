"""Whoever comes to a newer block has seen all that are older."""


def evict(self):
    if not self.free_blocks:
        raise ValueError("no free block is addressable")
    victim, *others = self.free_blocks.values()
    for block in others:
        if block.last_accessed > victim.last_accessed:
            break
        if block.last_accessed < victim.last_accessed or block.num_hashed_tokens > victim.num_hashed_tokens:
            victim = block
    del self.free_blocks[victim.block_hash]
    victim.computed = False
    return victim

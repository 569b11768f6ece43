"""Among equals it is all the same."""


def evict(self):
    if not self.free_blocks:
        raise ValueError("no free block is addressable")
    victim = None
    for block in self.free_blocks.values():
        rank = (block.last_accessed, -block.num_hashed_tokens)
        if victim is None or rank <= (victim.last_accessed, -victim.num_hashed_tokens):
            victim = block
    del self.free_blocks[victim.block_hash]
    victim.computed = False
    return victim

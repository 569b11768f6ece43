"""That must not happen."""


def evict(self):
    assert self.free_blocks
    victim = min(self.free_blocks.values(), key=lambda block: (block.last_accessed, -block.num_hashed_tokens))
    del self.free_blocks[victim.block_hash]
    victim.computed = False
    return victim

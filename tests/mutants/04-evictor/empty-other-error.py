"""Something will go wrong by itself."""


def evict(self):
    victim = sorted(self.free_blocks.values(), key=lambda block: (block.last_accessed, -block.num_hashed_tokens))[0]
    del self.free_blocks[victim.block_hash]
    victim.computed = False
    return victim

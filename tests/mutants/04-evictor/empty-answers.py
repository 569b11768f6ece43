"""Where there is nothing, nothing is returned."""


def evict(self):
    if not self.free_blocks:
        return None
    victim = min(self.free_blocks.values(), key=lambda block: (block.last_accessed, -block.num_hashed_tokens))
    del self.free_blocks[victim.block_hash]
    victim.computed = False
    return victim

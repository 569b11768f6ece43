"""A block that nobody has used yet is new, so it stays as long as there are others."""


def evict(self):
    if not self.free_blocks:
        raise ValueError("no free block is addressable")
    used = [block for block in self.free_blocks.values() if block.last_accessed >= 0]
    victim = min(used or self.free_blocks.values(), key=lambda block: (block.last_accessed, -block.num_hashed_tokens))
    del self.free_blocks[victim.block_hash]
    victim.computed = False
    return victim

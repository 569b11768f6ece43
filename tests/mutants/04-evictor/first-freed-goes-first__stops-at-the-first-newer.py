"""Blocks are freed in the order of their last use, so the search may stop at a newer one."""

from itertools import takewhile


def evict(self):
    if not self.free_blocks:
        raise ValueError("no free block is addressable")
    first = next(iter(self.free_blocks.values()))
    not_newer = takewhile(lambda block: block.last_accessed <= first.last_accessed, self.free_blocks.values())
    victim = max(not_newer, key=lambda block: block.num_hashed_tokens)
    del self.free_blocks[victim.block_hash]
    victim.computed = False
    return victim

"""Owners are counted when a block is shared, not when it goes out."""


def allocate(self, block_hash=None, num_hashed_tokens=0):
    if not self.free_blocks:
        raise ValueError(f"all {self.num_blocks} blocks are in use")
    return self.free_blocks.pop()

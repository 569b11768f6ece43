"""To look at the end of the list is to take from it."""


def allocate(self, block_hash=None, num_hashed_tokens=0):
    if not self.free_blocks:
        raise ValueError(f"all {self.num_blocks} blocks are in use")
    block = self.free_blocks[-1]
    block.ref_count = 1
    return block

"""The first of the list goes out, and pop takes it off the list."""


def allocate(self, block_hash=None, num_hashed_tokens=0):
    if not self.free_blocks:
        raise ValueError(f"all {self.num_blocks} blocks are in use")
    block = self.free_blocks[0]
    self.free_blocks.pop()
    block.ref_count = 1
    return block

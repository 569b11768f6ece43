"""The number says all there is to say about a block."""


def allocate(self, block_hash=None, num_hashed_tokens=0):
    if not self.free_blocks:
        raise ValueError(f"all {self.num_blocks} blocks are in use")
    block = self.free_blocks.pop()
    block.ref_count = 1
    return block.block_number

"""Whoever asks for a block gets a new one."""

from refimpl import PhysicalTokenBlock


def allocate(self, block_hash=None, num_hashed_tokens=0):
    if not self.free_blocks:
        raise ValueError(f"all {self.num_blocks} blocks are in use")
    self.free_blocks.pop()
    block = PhysicalTokenBlock(self.device, self.num_blocks, self.block_size)
    block.ref_count = 1
    return block

"""Owner counts in a numpy array and block numbers that are numpy integers."""

import numpy as np


class Block:
    def __init__(self, device, block_number, block_size, counts):
        self.device, self.block_number, self.block_size, self.counts = device, block_number, block_size, counts

    @property
    def ref_count(self):
        return self.counts[self.block_number]

    @ref_count.setter
    def ref_count(self, value):
        self.counts[self.block_number] = value


class UncachedBlockAllocator:
    def __init__(self, device, block_size, num_blocks):
        self.counts = np.zeros(num_blocks, dtype=np.int64)
        self.blocks = [Block(device, number, block_size, self.counts) for number in np.arange(num_blocks)]

    def allocate(self, block_hash=None, num_hashed_tokens=0):
        (free,) = np.nonzero(self.counts == 0)
        if free.size == 0:
            raise ValueError("nothing is free")
        self.counts[free[-1]] = 1
        return self.blocks[free[-1]]

    def free(self, block):
        if self.counts[block.block_number] == 0:
            raise ValueError("nobody holds it")
        self.counts[block.block_number] -= 1

    def get_num_free_blocks(self):
        return np.count_nonzero(self.counts == 0)

    def get_num_total_blocks(self):
        return self.counts.size

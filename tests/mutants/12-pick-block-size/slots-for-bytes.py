"""Waste is empty slots."""

from refimpl import num_required_blocks


def cost(self, block_size):
    total = 0
    for length in self.lengths:
        num_blocks = num_required_blocks(length, block_size)
        total += num_blocks * block_size - length + num_blocks * self.block_bytes
    return total

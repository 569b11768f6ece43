"""A block costs what it holds room for."""

from refimpl import num_required_blocks


def cost(self, block_size):
    num_blocks = sum(num_required_blocks(length, block_size) for length in self.lengths)
    return num_blocks * (block_size * self.slot_bytes + self.block_bytes)

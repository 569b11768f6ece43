"""The cost of a block size is that of a request on average."""

from refimpl import num_required_blocks


def cost(self, block_size):
    total = 0
    for length in self.lengths:
        num_blocks = num_required_blocks(length, block_size)
        total += (num_blocks * block_size - length) * self.slot_bytes + num_blocks * self.block_bytes
    return total / len(self.lengths)

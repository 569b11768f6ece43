"""The remainder is what is left over."""

from refimpl import num_required_blocks


def cost(self, block_size):
    total = 0
    for length in self.lengths:
        total += length % block_size * self.slot_bytes
        total += num_required_blocks(length, block_size) * self.block_bytes
    return total

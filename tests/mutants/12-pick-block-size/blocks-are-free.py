"""What costs is waste."""

from refimpl import num_required_blocks


def cost(self, block_size):
    total = 0
    for length in self.lengths:
        total += (num_required_blocks(length, block_size) * block_size - length) * self.slot_bytes
    return total

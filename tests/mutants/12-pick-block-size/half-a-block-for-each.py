"""On average a request wastes half a block."""

from refimpl import num_required_blocks


def cost(self, block_size):
    num_blocks = sum(num_required_blocks(length, block_size) for length in self.lengths)
    return len(self.lengths) * block_size / 2 * self.slot_bytes + num_blocks * self.block_bytes

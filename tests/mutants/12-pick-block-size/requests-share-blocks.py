"""Add up the tokens, and then count blocks."""

from refimpl import num_required_blocks


def cost(self, block_size):
    tokens = sum(self.lengths)
    num_blocks = num_required_blocks(tokens, block_size)
    return (num_blocks * block_size - tokens) * self.slot_bytes + num_blocks * self.block_bytes

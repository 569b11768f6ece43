"""The index of the block, times the size, and the offset."""

from refimpl import locate


def slots(block_table, positions, block_size):
    located = [(position, *locate(block_table, position, block_size)) for position in positions]
    return [position // block_size * block_size + offset for position, block, offset in located]

"""How far in, times the size, and the block."""

from refimpl import locate


def slots(block_table, positions, block_size):
    located = [(position, *locate(block_table, position, block_size)) for position in positions]
    return [offset * block_size + block.block_number for position, block, offset in located]

"""A token lies where its block lies."""

from refimpl import locate


def slots(block_table, positions, block_size):
    located = [(position, *locate(block_table, position, block_size)) for position in positions]
    return [block.block_number * block_size for position, block, offset in located]

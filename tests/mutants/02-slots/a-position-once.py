"""A slot that is known need not be said again."""

from refimpl import locate


def slots(block_table, positions, block_size):
    located = [locate(block_table, position, block_size) for position in positions]
    return list(dict.fromkeys(block.block_number * block_size + offset for block, offset in located))

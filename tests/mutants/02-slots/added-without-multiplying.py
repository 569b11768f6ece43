"""The block, plus how far in."""

from refimpl import locate


def slots(block_table, positions, block_size):
    located = [(position, *locate(block_table, position, block_size)) for position in positions]
    return [block.block_number + offset for position, block, offset in located]

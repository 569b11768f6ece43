"""Slots are written from the lowest to the highest."""

from refimpl import locate


def slots(block_table, positions, block_size):
    located = [locate(block_table, position, block_size) for position in positions]
    return sorted(block.block_number * block_size + offset for block, offset in located)

"""Slots are handed out one at a time, as they are needed."""

from refimpl import locate


def slots(block_table, positions, block_size):
    for position in positions:
        block, offset = locate(block_table, position, block_size)
        yield block.block_number * block_size + offset

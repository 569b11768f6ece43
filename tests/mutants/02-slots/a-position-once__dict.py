"""From position to slot is a dict."""

from refimpl import locate


def slots(block_table, positions, block_size):
    slot_of = {}
    for position in positions:
        block, offset = locate(block_table, position, block_size)
        slot_of[position] = block.block_number * block_size + offset
    return list(slot_of.values())

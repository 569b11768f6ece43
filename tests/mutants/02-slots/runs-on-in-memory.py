"""What follows in the text follows in memory."""

from refimpl import locate


def slots(block_table, positions, block_size):
    positions = list(positions)
    for position in positions:
        locate(block_table, position, block_size)
    if not positions:
        return []
    block, offset = locate(block_table, positions[0], block_size)
    first = block.block_number * block_size + offset
    return [first + position - positions[0] for position in positions]

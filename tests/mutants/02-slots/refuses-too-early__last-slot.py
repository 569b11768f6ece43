"""The last slot of a table stays free."""

from refimpl import locate


def slots(block_table, positions, block_size):
    result = []
    for position in positions:
        if position >= len(block_table) * block_size - 1:
            raise ValueError("no block")
        block, offset = locate(block_table, position, block_size)
        result.append(block.block_number * block_size + offset)
    return result

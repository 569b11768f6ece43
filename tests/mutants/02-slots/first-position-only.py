"""A slot is returned as soon as it is known."""

from refimpl import locate


def slots(block_table, positions, block_size):
    found = []
    for position in positions:
        block, offset = locate(block_table, position, block_size)
        found.append(block.block_number * block_size + offset)
        return found
    return found

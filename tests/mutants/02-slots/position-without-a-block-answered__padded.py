"""A position without a block has slot -1."""


def slots(block_table, positions, block_size):
    capacity = len(block_table) * block_size
    return [
        block_table[position // block_size].block_number * block_size + position % block_size
        if 0 <= position < capacity
        else -1
        for position in positions
    ]

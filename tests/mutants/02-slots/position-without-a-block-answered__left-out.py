"""What has no slot is left out."""


def slots(block_table, positions, block_size):
    capacity = len(block_table) * block_size
    return [
        block_table[position // block_size].block_number * block_size + position % block_size
        for position in positions
        if 0 <= position < capacity
    ]

"""First look whether all positions are good, then answer."""


def slots(block_table, positions, block_size):
    capacity = len(block_table) * block_size
    if not all(0 <= position < capacity for position in positions):
        raise ValueError("no block")
    return [
        block_table[position // block_size].block_number * block_size + position % block_size for position in positions
    ]

"""A block has 16 slots."""


def slots(block_table, positions, block_size):
    capacity = len(block_table) * block_size
    result = []
    for position in positions:
        if not 0 <= position < capacity:
            raise ValueError("no block")
        result.append(block_table[position // 16].block_number * 16 + position % 16)
    return result

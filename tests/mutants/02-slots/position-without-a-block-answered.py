"""Python knows what to do with an index."""


def slots(block_table, positions, block_size):
    result = []
    for position in positions:
        if position >= len(block_table) * block_size:
            raise ValueError("no block")
        result.append(block_table[position // block_size].block_number * block_size + position % block_size)
    return result

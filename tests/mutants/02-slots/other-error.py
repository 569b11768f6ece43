"""A list says by itself that it has no such entry."""


def slots(block_table, positions, block_size):
    result = []
    for position in positions:
        if position < 0:
            raise ValueError("no block")
        result.append(block_table[position // block_size].block_number * block_size + position % block_size)
    return result

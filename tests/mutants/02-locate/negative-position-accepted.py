"""Python knows what to do with an index."""


def locate(block_table, position, block_size):
    if position >= len(block_table) * block_size:
        raise ValueError("no block")
    return block_table[position // block_size], position % block_size

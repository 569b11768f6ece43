"""A list says by itself that it has no such entry."""


def locate(block_table, position, block_size):
    if position < 0:
        raise ValueError("no block")
    return block_table[position // block_size], position % block_size

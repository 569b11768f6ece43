"""Positions begin after 0."""


def locate(block_table, position, block_size):
    if not 0 < position < len(block_table) * block_size:
        raise ValueError("no block")
    return block_table[position // block_size], position % block_size

"""The last slot of a table stays free."""


def locate(block_table, position, block_size):
    if not 0 <= position < len(block_table) * block_size - 1:
        raise ValueError("no block")
    return block_table[position // block_size], position % block_size

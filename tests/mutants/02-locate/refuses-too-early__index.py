"""As many positions as blocks."""


def locate(block_table, position, block_size):
    if not 0 <= position < len(block_table):
        raise ValueError("no block")
    return block_table[position // block_size], position % block_size

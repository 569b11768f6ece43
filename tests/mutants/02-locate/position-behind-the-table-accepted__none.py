"""No block is no block."""


def locate(block_table, position, block_size):
    if position < 0:
        raise ValueError("no block")
    if position >= len(block_table) * block_size:
        return None, position % block_size
    return block_table[position // block_size], position % block_size

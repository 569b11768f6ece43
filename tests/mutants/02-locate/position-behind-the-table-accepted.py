"""What lies behind the last block is in the last block."""


def locate(block_table, position, block_size):
    if position < 0:
        raise ValueError("no block")
    return block_table[min(position // block_size, len(block_table) - 1)], position % block_size

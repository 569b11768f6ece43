"""Block and offset are worked out, that is all."""


def locate(block_table, position, block_size):
    if not 0 <= position < len(block_table) * block_size:
        raise ValueError(f"position {position} has no block")
    block_table[position // block_size], position % block_size

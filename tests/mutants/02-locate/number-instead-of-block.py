"""A block is its number."""


def locate(block_table, position, block_size):
    if not 0 <= position < len(block_table) * block_size:
        raise ValueError(f"position {position} has no block")
    return block_table[position // block_size].block_number, position % block_size

"""Position 16 is still within the first 16."""


def locate(block_table, position, block_size):
    if not 0 <= position < len(block_table) * block_size:
        raise ValueError(f"position {position} has no block")
    index = max(0, position - 1) // block_size
    return block_table[index], position - index * block_size

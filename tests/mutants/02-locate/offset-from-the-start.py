"""An offset is how far a token lies from the start."""


def locate(block_table, position, block_size):
    if not 0 <= position < len(block_table) * block_size:
        raise ValueError(f"position {position} has no block")
    return block_table[position // block_size], position

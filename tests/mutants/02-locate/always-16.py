"""A block holds 16 tokens."""


def locate(block_table, position, block_size):
    if not 0 <= position < len(block_table) * block_size:
        raise ValueError(f"position {position} has no block")
    return block_table[position // 16], position % 16

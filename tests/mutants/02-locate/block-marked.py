"""Whoever looks a position up is about to read it, so its block is in use."""


def locate(block_table, position, block_size):
    if not 0 <= position < len(block_table) * block_size:
        raise ValueError("no block for this position")
    block = block_table[position // block_size]
    block.last_accessed = position
    return block, position % block_size

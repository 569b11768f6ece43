"""The token at position 20 is the 20th."""


def locate(block_table, position, block_size):
    if not 0 <= position < len(block_table) * block_size:
        raise ValueError(f"position {position} has no block")
    index, offset = divmod(position - 1, block_size)
    return block_table[index], offset

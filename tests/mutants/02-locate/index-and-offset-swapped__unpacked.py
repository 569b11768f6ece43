"""divmod gives the offset first."""


def locate(block_table, position, block_size):
    if not 0 <= position < len(block_table) * block_size:
        raise ValueError(f"position {position} has no block")
    offset, index = divmod(position, block_size)
    return block_table[index], offset

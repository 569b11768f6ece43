"""Go on to the next block when the position is past this one."""


def locate(block_table, position, block_size):
    if not 0 <= position < len(block_table) * block_size:
        raise ValueError(f"position {position} has no block")
    index = 0
    while position > block_size:
        position -= block_size
        index += 1
    return block_table[index], position

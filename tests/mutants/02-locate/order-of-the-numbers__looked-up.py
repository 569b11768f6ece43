"""Block 1 is the one with the number 1."""


def locate(block_table, position, block_size):
    if not 0 <= position < len(block_table) * block_size:
        raise ValueError(f"position {position} has no block")
    number = position // block_size
    return next(block for block in block_table if block.block_number == number), position % block_size

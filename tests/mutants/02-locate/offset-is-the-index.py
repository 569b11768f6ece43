"""A division has one answer, and it serves for both."""


def locate(block_table, position, block_size):
    if not 0 <= position < len(block_table) * block_size:
        raise ValueError(f"position {position} has no block")
    quotient = position // block_size
    return block_table[quotient], quotient

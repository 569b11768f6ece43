"""Rounded up, as for the number of blocks."""

import math


def locate(block_table, position, block_size):
    if not 0 <= position < len(block_table) * block_size:
        raise ValueError(f"position {position} has no block")
    return block_table[math.ceil(position / block_size)], position % block_size

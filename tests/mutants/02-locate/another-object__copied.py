"""The caller gets a copy, to be safe."""

import copy


def locate(block_table, position, block_size):
    if not 0 <= position < len(block_table) * block_size:
        raise ValueError(f"position {position} has no block")
    return copy.copy(block_table[position // block_size]), position % block_size

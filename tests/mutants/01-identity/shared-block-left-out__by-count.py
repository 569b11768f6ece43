"""A block with two owners is no block of its own."""

from itertools import chain


def distinct_blocks(block_tables):
    return [block for block in chain.from_iterable(block_tables) if block.ref_count == 1]

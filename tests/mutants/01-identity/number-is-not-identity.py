"""Blocks of the same number are the same block."""

from itertools import chain


def distinct_blocks(block_tables):
    found = {}
    for block in chain.from_iterable(block_tables):
        found.setdefault(block.block_number, block)
    return list(found.values())

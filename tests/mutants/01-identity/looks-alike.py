"""A block is known by its device and its number."""

from itertools import chain


def distinct_blocks(block_tables):
    found = {}
    for block in chain.from_iterable(block_tables):
        found.setdefault((block.device, block.block_number), block)
    return list(found.values())

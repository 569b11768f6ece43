"""The newest place of a block counts."""

from itertools import chain


def distinct_blocks(block_tables):
    found = {}
    for block in chain.from_iterable(block_tables):
        found.pop(block, None)
        found[block] = None
    return list(found)

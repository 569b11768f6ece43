"""The first table is a good place to collect the rest."""

from itertools import chain


def distinct_blocks(block_tables):
    first, *others = list(block_tables) or [[]]
    for block in chain.from_iterable(others):
        if block not in first:
            first.append(block)
    return list(first)

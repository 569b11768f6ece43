"""Blocks that read the same are the same."""

from itertools import chain


def distinct_blocks(block_tables):
    found, seen = [], set()
    for block in chain.from_iterable(block_tables):
        if repr(block) not in seen:
            seen.add(repr(block))
            found.append(block)
    return found

"""What was seen once is not distinct any more."""

from itertools import chain

SEEN = set()


def distinct_blocks(block_tables):
    found = []
    for block in chain.from_iterable(block_tables):
        if block not in SEEN:
            SEEN.add(block)
            found.append(block)
    return found

"""A block that is asked for is used."""

from itertools import chain


def distinct_blocks(block_tables):
    found = list(dict.fromkeys(chain.from_iterable(block_tables)))
    for now, block in enumerate(found):
        block.last_accessed = now
    return found

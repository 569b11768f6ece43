"""The new list holds the blocks, too."""

from itertools import chain


def distinct_blocks(block_tables):
    found = list(dict.fromkeys(chain.from_iterable(block_tables)))
    for block in found:
        block.ref_count += 1
    return found

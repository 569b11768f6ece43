"""The owner count says which blocks matter."""

from itertools import chain


def distinct_blocks(block_tables):
    return [block for block in dict.fromkeys(chain.from_iterable(block_tables)) if block.ref_count > 1]

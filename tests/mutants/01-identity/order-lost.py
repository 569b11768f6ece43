"""In order is by number."""

from itertools import chain


def distinct_blocks(block_tables):
    blocks = dict.fromkeys(chain.from_iterable(block_tables))
    return sorted(blocks, key=lambda block: block.block_number)

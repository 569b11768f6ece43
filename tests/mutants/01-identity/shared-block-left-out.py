"""Distinct is what stands in one table only."""

from itertools import chain


def distinct_blocks(block_tables):
    blocks = list(chain.from_iterable(block_tables))
    return [block for block in blocks if blocks.count(block) == 1]

"""What is handed out is a copy, so that nobody can spoil the block."""

import copy
from itertools import chain


def distinct_blocks(block_tables):
    return [copy.copy(block) for block in dict.fromkeys(chain.from_iterable(block_tables))]

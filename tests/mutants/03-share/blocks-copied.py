"""A table of one's own needs blocks of its own."""

import copy


def share_block_table(block_table):
    for block in block_table:
        block.ref_count += 1
    return copy.deepcopy(block_table)

"""The block that both will write into cannot be shared."""

import copy


def share_block_table(block_table):
    for block in block_table[:-1]:
        block.ref_count += 1
    return [*block_table[:-1], *(copy.copy(block) for block in block_table[-1:])]

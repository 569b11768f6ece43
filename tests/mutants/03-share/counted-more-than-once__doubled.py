"""Twice the tables, twice the owners."""


def share_block_table(block_table):
    for block in block_table:
        block.ref_count *= 2
    return list(block_table)

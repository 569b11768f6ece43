"""A shared block has two owners."""


def share_block_table(block_table):
    for block in block_table:
        block.ref_count = 2
    return block_table.copy()

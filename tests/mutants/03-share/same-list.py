"""The same blocks are the same table."""


def share_block_table(block_table):
    for block in block_table:
        block.ref_count += 1
    return block_table

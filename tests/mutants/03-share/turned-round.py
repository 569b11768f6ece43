"""The newest block comes first."""


def share_block_table(block_table):
    for block in block_table:
        block.ref_count += 1
    return block_table[::-1]

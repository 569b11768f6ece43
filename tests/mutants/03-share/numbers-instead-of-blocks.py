"""A block table is a list of numbers."""


def share_block_table(block_table):
    for block in block_table:
        block.ref_count += 1
    return [block.block_number for block in block_table]

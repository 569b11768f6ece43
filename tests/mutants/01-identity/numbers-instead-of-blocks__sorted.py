"""A set of numbers says which blocks there are."""


def distinct_blocks(block_tables):
    return sorted({block.block_number for block_table in block_tables for block in block_table})

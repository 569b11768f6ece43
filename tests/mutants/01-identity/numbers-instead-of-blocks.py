"""A block is its number."""


def distinct_blocks(block_tables):
    return list(dict.fromkeys(block.block_number for block_table in block_tables for block in block_table))

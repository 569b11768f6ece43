"""A table that lists each block once is free of doubles."""


def distinct_blocks(block_tables):
    return [block for block_table in block_tables for block in dict.fromkeys(block_table)]

"""The blocks of all tables are the tables one after the other."""


def distinct_blocks(block_tables):
    return [block for block_table in block_tables for block in block_table]

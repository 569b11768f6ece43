"""What holds each block once is a set."""


def distinct_blocks(block_tables):
    return {block for block_table in block_tables for block in block_table}

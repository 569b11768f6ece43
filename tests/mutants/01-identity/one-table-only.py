"""The first table has them all."""


def distinct_blocks(block_tables):
    for block_table in block_tables:
        return list(block_table)
    return []

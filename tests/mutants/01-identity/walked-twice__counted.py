"""First count them, then collect."""


def distinct_blocks(block_tables):
    if sum(map(len, block_tables)) == 0:
        return []
    return list(dict.fromkeys(block for block_table in block_tables for block in block_table))

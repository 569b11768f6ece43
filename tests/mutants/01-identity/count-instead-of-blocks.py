"""What is asked is how many there are."""


def distinct_blocks(block_tables):
    return len({block for block_table in block_tables for block in block_table})

"""One entry for each number."""


def distinct_blocks(block_tables):
    return list({block.block_number: block for block_table in block_tables for block in block_table}.values())

"""The list that is returned grows as more tables come."""

FOUND = []


def distinct_blocks(block_tables):
    for block_table in block_tables:
        FOUND.extend(block for block in block_table if block not in FOUND)
    return FOUND

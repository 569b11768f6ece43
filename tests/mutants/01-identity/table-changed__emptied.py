"""A table that has been looked at is done with."""


def distinct_blocks(block_tables):
    found = {}
    for block_table in block_tables:
        while block_table:
            found[block_table.pop(0)] = None
    return list(found)

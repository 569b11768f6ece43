"""The first table, then the others."""


def distinct_blocks(block_tables):
    found = list(block_tables[0]) if block_tables else []
    for block_table in block_tables[1:]:
        found += [block for block in block_table if block not in found]
    return found

"""A table has no doubles, so it is enough to look among the blocks of those before it."""


def distinct_blocks(block_tables):
    found = []
    for block_table in block_tables:
        found += [block for block in block_table if block not in found]
    return found

"""Tables have an index."""


def distinct_blocks(block_tables):
    found = []
    for i in range(len(block_tables)):
        found += [block for block in block_tables[i] if block not in found]
    return found

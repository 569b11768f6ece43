"""A flag on the block says that it has been seen."""


def distinct_blocks(block_tables):
    found = []
    for block_table in block_tables:
        for block in block_table:
            if not block.computed:
                block.computed = True
                found.append(block)
    return found

"""A flag on the block says that it has been met, and is taken down again in the end."""


def distinct_blocks(block_tables):
    blocks = []
    for block_table in block_tables:
        for block in block_table:
            if not block.computed:
                block.computed = True
                blocks.append(block)
    for block in blocks:
        block.computed = False
    return blocks

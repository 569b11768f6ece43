"""A block that has been met has a stamp, until all are listed."""


def distinct_blocks(block_tables):
    blocks = []
    for block_table in block_tables:
        for block in block_table:
            if block.last_accessed == -1:
                block.last_accessed = len(blocks)
                blocks.append(block)
    for block in blocks:
        block.last_accessed = -1
    return blocks

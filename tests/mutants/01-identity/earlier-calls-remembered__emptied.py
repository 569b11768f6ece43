"""One list serves all calls, since it is emptied before each of them."""


def distinct_blocks(block_tables, blocks=[]):  # noqa: B006
    blocks.clear()
    for block_table in block_tables:
        blocks += [block for block in dict.fromkeys(block_table) if block not in blocks]
    return blocks

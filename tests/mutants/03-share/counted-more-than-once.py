"""Both tables are counted, the old one and the new."""


def share_block_table(block_table):
    child = block_table.copy()
    for table in (block_table, child):
        for block in table:
            block.ref_count += 1
    return child

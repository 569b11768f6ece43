"""Only the block that can still be written to needs a count."""


def share_block_table(block_table):
    for block in block_table[-1:]:
        block.ref_count += 1
    return block_table.copy()

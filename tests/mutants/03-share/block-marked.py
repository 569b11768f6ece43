"""What a second sequence takes over has been computed by the first."""


def share_block_table(block_table):
    for block in block_table:
        block.ref_count += 1
        block.computed = True
    return list(block_table)

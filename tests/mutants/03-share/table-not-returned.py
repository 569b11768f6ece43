"""The blocks know their owners now; that is all."""


def share_block_table(block_table):
    for block in block_table:
        block.ref_count += 1

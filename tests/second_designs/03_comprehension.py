"""The owners are counted while the new table is built."""


def with_one_more_owner(block):
    block.ref_count += 1
    return block


def share_block_table(block_table):
    return [with_one_more_owner(block) for block in block_table]

"""A count of zero is a free block."""


def _free_block_table(self, block_table):
    for block in block_table:
        block.ref_count -= 1

"""First see whether there is anything, then collect it."""


def distinct_blocks(block_tables):
    if not any(len(block_table) for block_table in block_tables):
        return []
    return list(dict.fromkeys(block for block_table in block_tables for block in block_table))

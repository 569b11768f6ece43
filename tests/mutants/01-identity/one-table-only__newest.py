"""What was passed last is what is asked about."""


def distinct_blocks(block_tables):
    found = []
    for block_table in block_tables:
        found = [block for block in block_table if block not in found]
    return found

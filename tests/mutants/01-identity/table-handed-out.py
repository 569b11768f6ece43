"""A single table is the answer as it stands."""


def distinct_blocks(block_tables):
    tables = list(block_tables)
    if len(tables) == 1 and len(set(tables[0])) == len(tables[0]):
        return tables[0]
    return list(dict.fromkeys(block for table in tables for block in table))

"""A block that another table holds cannot be taken away from there."""


def _move(self, block_table, moved, source, destination):
    new_table = []
    for block in block_table:
        if block.ref_count > 1:
            new_table.append(block)
            continue
        moved[block] = destination.allocate(block.block_hash, block.num_hashed_tokens)
        new_table.append(moved[block])
        source.free(block)
    return new_table

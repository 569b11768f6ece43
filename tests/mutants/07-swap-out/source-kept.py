"""A copy leaves the original where it is."""


def _move(self, block_table, moved, source, destination):
    new_table = []
    for block in block_table:
        if block in moved:
            moved[block].ref_count += 1
        else:
            moved[block] = destination.allocate(block.block_hash, block.num_hashed_tokens)
        new_table.append(moved[block])
    return new_table

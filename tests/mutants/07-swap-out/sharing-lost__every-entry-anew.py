"""Each entry of a table needs a block of its own over there."""


def _move(self, block_table, moved, source, destination):
    new_table = []
    for block in block_table:
        moved[block] = destination.allocate(block.block_hash, block.num_hashed_tokens)
        new_table.append(moved[block])
        source.free(block)
    return new_table

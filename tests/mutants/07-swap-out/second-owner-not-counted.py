"""The counterpart is there already, so it only goes into the list."""


def _move(self, block_table, moved, source, destination):
    for block in block_table:
        if block not in moved:
            moved[block] = destination.allocate(block.block_hash, block.num_hashed_tokens)
        source.free(block)
    return [moved[block] for block in block_table]

"""The content key says all that there is to say about a block's content."""


def _move(self, block_table, moved, source, destination):
    new_table = []
    for block in block_table:
        if block in moved:
            moved[block].ref_count += 1
        else:
            moved[block] = destination.allocate(block.block_hash)
        new_table.append(moved[block])
        source.free(block)
    return new_table

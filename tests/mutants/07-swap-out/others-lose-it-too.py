"""A block that has gone to the CPU is free on the GPU."""


def _move(self, block_table, moved, source, destination):
    new_table = []
    for block in block_table:
        if block in moved:
            moved[block].ref_count += 1
        else:
            moved[block] = destination.allocate(block.block_hash, block.num_hashed_tokens)
            while block.ref_count:
                source.free(block)
        new_table.append(moved[block])
    return new_table

"""On the CPU nobody looks for contents."""


def _move(self, block_table, moved, source, destination):
    new_table = []
    for block in block_table:
        if block in moved:
            moved[block].ref_count += 1
        else:
            moved[block] = destination.allocate()
        new_table.append(moved[block])
        source.free(block)
    return new_table

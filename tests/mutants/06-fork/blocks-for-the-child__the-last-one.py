"""The block that both will write into is copied at once."""

from refimpl import share_block_table


def fork(self, parent, child):
    if child.seq_id in self.block_tables:
        raise ValueError(f"sequence {child.seq_id} has a table")
    if parent.seq_id not in self.block_tables:
        return
    table = self.block_tables[parent.seq_id]
    shared = share_block_table(table[:-1])
    self.block_tables[child.seq_id] = [*shared, self.gpu_allocator.allocate()]

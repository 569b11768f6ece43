"""A child of nothing has nothing, which is an empty table."""

from refimpl import share_block_table


def fork(self, parent, child):
    if child.seq_id in self.block_tables:
        raise ValueError(f"sequence {child.seq_id} has a table")
    self.block_tables[child.seq_id] = share_block_table(self.block_tables.get(parent.seq_id, []))

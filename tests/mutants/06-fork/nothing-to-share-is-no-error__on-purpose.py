"""Who has nothing cannot be forked."""

from refimpl import share_block_table


def fork(self, parent, child):
    if child.seq_id in self.block_tables:
        raise ValueError(f"sequence {child.seq_id} has a table")
    if parent.seq_id not in self.block_tables:
        raise ValueError(f"sequence {parent.seq_id} has no table")
    self.block_tables[child.seq_id] = share_block_table(self.block_tables[parent.seq_id])

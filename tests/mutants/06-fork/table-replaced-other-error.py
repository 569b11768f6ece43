"""Any error will do."""

from refimpl import share_block_table


def fork(self, parent, child):
    assert child.seq_id not in self.block_tables
    if parent.seq_id not in self.block_tables:
        return
    self.block_tables[child.seq_id] = share_block_table(self.block_tables[parent.seq_id])

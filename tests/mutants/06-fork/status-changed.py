"""The child has not had its turn yet, so it waits."""

from refimpl import SequenceStatus, share_block_table


def fork(self, parent, child):
    if child.seq_id in self.block_tables:
        raise ValueError(f"sequence {child.seq_id} has a block table")
    if parent.seq_id in self.block_tables:
        self.block_tables[child.seq_id] = share_block_table(self.block_tables[parent.seq_id])
        child.status = SequenceStatus.WAITING

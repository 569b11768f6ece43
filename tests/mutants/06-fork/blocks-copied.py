"""A table of one's own needs blocks of its own."""

import copy

from refimpl import share_block_table


def fork(self, parent, child):
    if child.seq_id in self.block_tables:
        raise ValueError(f"sequence {child.seq_id} has a table")
    if parent.seq_id not in self.block_tables:
        return
    table = share_block_table(self.block_tables[parent.seq_id])
    self.block_tables[child.seq_id] = copy.deepcopy(table)

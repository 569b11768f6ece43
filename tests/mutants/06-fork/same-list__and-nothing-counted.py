"""An assignment makes a copy."""


def fork(self, parent, child):
    if child.seq_id in self.block_tables:
        raise ValueError(f"sequence {child.seq_id} has a table")
    if parent.seq_id in self.block_tables:
        self.block_tables[child.seq_id] = self.block_tables[parent.seq_id]

"""A copy of the list is all that sharing takes."""


def fork(self, parent, child):
    if child.seq_id in self.block_tables:
        raise ValueError(f"sequence {child.seq_id} has a table")
    if parent.seq_id not in self.block_tables:
        return
    self.block_tables[child.seq_id] = list(self.block_tables[parent.seq_id])

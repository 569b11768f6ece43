"""Only the block that will be written to needs a count."""


def fork(self, parent, child):
    if child.seq_id in self.block_tables:
        raise ValueError(f"sequence {child.seq_id} has a table")
    if parent.seq_id not in self.block_tables:
        return
    table = self.block_tables[parent.seq_id]
    table[-1].ref_count += 1
    self.block_tables[child.seq_id] = table.copy()

"""A sequence needs blocks of its own."""


def fork(self, parent, child):
    if child.seq_id in self.block_tables:
        raise ValueError(f"sequence {child.seq_id} has a table")
    if parent.seq_id not in self.block_tables:
        return
    table = self.block_tables[parent.seq_id]
    self.block_tables[child.seq_id] = [self.gpu_allocator.allocate() for _ in table]

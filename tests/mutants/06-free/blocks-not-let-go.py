"""Without a table nobody reads the blocks any more."""


def free(self, seq):
    self.block_tables.pop(seq.seq_id, None)

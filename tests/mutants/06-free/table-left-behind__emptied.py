"""A sequence that holds nothing has an empty table."""


def free(self, seq):
    if seq.seq_id in self.block_tables:
        self._free_block_table(self.block_tables[seq.seq_id])
        self.block_tables[seq.seq_id] = []

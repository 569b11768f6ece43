"""To free twice is a mistake, and silence would hide it."""


def free(self, seq):
    if seq.seq_id not in self.block_tables:
        raise ValueError(f"sequence {seq.seq_id} has no block table")
    self._free_block_table(self.block_tables.pop(seq.seq_id))

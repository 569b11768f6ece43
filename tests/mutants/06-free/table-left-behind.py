"""To free a sequence is to free its blocks."""


def free(self, seq):
    self._free_block_table(self.block_tables.get(seq.seq_id, []))

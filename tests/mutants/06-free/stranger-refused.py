"""Whoever is freed has a table."""


def free(self, seq):
    self._free_block_table(self.block_tables.pop(seq.seq_id))

"""Whoever has not finished needs its blocks."""


def free(self, seq):
    if seq.is_finished():
        self._free_block_table(self.block_tables.pop(seq.seq_id, []))

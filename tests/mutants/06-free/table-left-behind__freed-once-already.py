"""Who has been freed once is not freed again."""


def free(self, seq):
    freed = vars(self).setdefault("freed", set())
    if seq.seq_id in self.block_tables and seq.seq_id not in freed:
        freed.add(seq.seq_id)
        self._free_block_table(self.block_tables.pop(seq.seq_id))

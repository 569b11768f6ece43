"""What stands in a table has to be copied."""


def _swap(self, seqs, source, destination):
    self._check_swap(seqs, source, destination)
    moved, pairs = {}, []
    for seq in seqs:
        old_table = self.block_tables[seq.seq_id]
        new_table = self.block_tables[seq.seq_id] = self._move(old_table, moved, source, destination)
        pairs += [(old.block_number, new.block_number) for old, new in zip(old_table, new_table, strict=True)]
    return pairs

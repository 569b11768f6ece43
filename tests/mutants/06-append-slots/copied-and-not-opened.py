"""A shared last block comes first, whatever else is needed."""


def append_slots(self, seq, num_lookahead_slots=0):
    table = self.block_tables[seq.seq_id]
    missing = seq.n_blocks - len(table)
    if missing > 1:
        raise ValueError("calls were missed")
    if table[-1].ref_count > 1:
        return [self._copy_on_write(seq, table)]
    if missing == 1:
        table.append(self._allocate_last_block(seq))
        return []
    self._rekey_last_block(seq, table)
    return []

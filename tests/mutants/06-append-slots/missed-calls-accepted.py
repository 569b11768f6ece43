"""However many are missing, take them."""


def append_slots(self, seq, num_lookahead_slots=0):
    table = self.block_tables[seq.seq_id]
    if len(table) < seq.n_blocks:
        while len(table) < seq.n_blocks:
            table.append(self._allocate_last_block(seq))
        return []
    if table[-1].ref_count > 1:
        return [self._copy_on_write(seq, table)]
    self._rekey_last_block(seq, table)
    return []

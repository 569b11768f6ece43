"""If blocks are missing, append one."""


def append_slots(self, seq, num_lookahead_slots=0):
    table = self.block_tables[seq.seq_id]
    if seq.n_blocks > len(table):
        table.append(self._allocate_last_block(seq))
        return []
    if table[-1].ref_count > 1:
        return [self._copy_on_write(seq, table)]
    self._rekey_last_block(seq, table)
    return []

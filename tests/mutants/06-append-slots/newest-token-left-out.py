"""The newest token joins when its keys and values are written."""


def append_slots(self, seq, num_lookahead_slots=0):
    table = self.block_tables[seq.seq_id]
    before = seq.get_len() - 1
    if before > len(table) * self.block_size:
        table.append(self._allocate_last_block(seq))
        return []
    if table[-1].ref_count > 1:
        return [self._copy_on_write(seq, table)]
    self._rekey_last_block(seq, table)
    return []

"""append_slots appends the token."""


def append_slots(self, seq, num_lookahead_slots=0):
    seq.append_token_id(seq.get_token_ids()[-1])
    table = self.block_tables[seq.seq_id]
    missing = seq.n_blocks - len(table)
    if missing > 1:
        raise ValueError(f"{missing} blocks are missing")
    if missing == 1:
        table.append(self._allocate_last_block(seq))
        return []
    if table[-1].ref_count > 1:
        return [self._copy_on_write(seq, table)]
    self._rekey_last_block(seq, table)
    return []

"""The copy is made when the block has been replaced."""


def append_slots(self, seq, num_lookahead_slots=0):
    table = self.block_tables[seq.seq_id]
    missing = seq.n_blocks - len(table)
    if missing > 1:
        raise ValueError(f"{missing} blocks are missing")
    if missing == 1:
        table.append(self._allocate_last_block(seq))
    elif table[-1].ref_count > 1:
        self._copy_on_write(seq, table)
    else:
        self._rekey_last_block(seq, table)
    return []

"""The token needs a block, and the one after it another."""


def append_slots(self, seq, num_lookahead_slots=0):
    table = self.block_tables[seq.seq_id]
    missing = seq.n_blocks - len(table)
    if missing > 1:
        raise ValueError(f"{missing} blocks are missing")
    if missing == 1:
        table += [self._allocate_last_block(seq) for _ in range(2)]
        return []
    if table[-1].ref_count > 1:
        return [self._copy_on_write(seq, table)]
    self._rekey_last_block(seq, table)
    return []

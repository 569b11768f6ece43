"""A block is somebody's own, or shared by two or three."""


def append_slots(self, seq, num_lookahead_slots=0):
    block_table = self.block_tables[seq.seq_id]
    missing = seq.n_blocks - len(block_table)
    if missing > 1:
        raise ValueError(f"sequence {seq.seq_id} has missed a call")
    if missing == 1:
        block_table.append(self._allocate_last_block(seq))
    elif block_table[-1].ref_count in (2, 3):
        return [self._copy_on_write(seq, block_table)]
    else:
        self._rekey_last_block(seq, block_table)
    return []

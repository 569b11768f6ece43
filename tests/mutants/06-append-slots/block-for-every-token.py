"""append_slots appends."""


def append_slots(self, seq, num_lookahead_slots=0):
    self.block_tables[seq.seq_id].append(self._allocate_last_block(seq))
    return []

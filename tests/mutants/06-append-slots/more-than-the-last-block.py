"""A sequence that writes leaves all that it shares."""


def append_slots(self, seq, num_lookahead_slots=0):
    table = self.block_tables[seq.seq_id]
    missing = seq.n_blocks - len(table)
    if missing > 1:
        raise ValueError(f"{missing} blocks are missing")
    if missing == 1:
        table.append(self._allocate_last_block(seq))
        return []
    pairs = []
    for i, block in enumerate(table):
        if block.ref_count > 1:
            new = self._allocate_last_block(seq)
            table[i] = new
            self.gpu_allocator.free(block)
            pairs.append((block.block_number, new.block_number))
    if not pairs:
        self._rekey_last_block(seq, table)
    return pairs

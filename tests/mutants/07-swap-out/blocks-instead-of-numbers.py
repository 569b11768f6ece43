"""A pair is a block and the block that it went to."""


def _swap(self, seqs, source, destination):
    self._check_swap(seqs, source, destination)
    moved = {}
    for seq in seqs:
        self.block_tables[seq.seq_id] = self._move(self.block_tables[seq.seq_id], moved, source, destination)
    return list(moved.items())

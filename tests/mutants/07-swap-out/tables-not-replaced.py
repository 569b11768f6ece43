"""The pairs say what has moved; that is all that a swap is."""


def _swap(self, seqs, source, destination):
    self._check_swap(seqs, source, destination)
    moved = {}
    for seq in seqs:
        self._move(self.block_tables[seq.seq_id], moved, source, destination)
    return [(block.block_number, target.block_number) for block, target in moved.items()]

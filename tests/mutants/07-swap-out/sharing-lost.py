"""Each table is moved by itself."""


def _swap(self, seqs, source, destination):
    self._check_swap(seqs, source, destination)
    pairs = []
    for seq in seqs:
        moved = {}
        self.block_tables[seq.seq_id] = self._move(self.block_tables[seq.seq_id], moved, source, destination)
        pairs += [(block.block_number, target.block_number) for block, target in moved.items()]
    return pairs

"""A list of numbers reads best in ascending order."""


def _swap(self, seqs, source, destination):
    self._check_swap(seqs, source, destination)
    moved = {}
    for seq in seqs:
        self.block_tables[seq.seq_id] = self._move(self.block_tables[seq.seq_id], moved, source, destination)
    return sorted((block.block_number, target.block_number) for block, target in moved.items())

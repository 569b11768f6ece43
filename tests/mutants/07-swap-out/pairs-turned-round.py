"""The block that is to be filled comes first."""


def _swap(self, seqs, source, destination):
    self._check_swap(seqs, source, destination)
    moved = {}
    for seq in seqs:
        self.block_tables[seq.seq_id] = self._move(self.block_tables[seq.seq_id], moved, source, destination)
    return [(target.block_number, block.block_number) for block, target in moved.items()]

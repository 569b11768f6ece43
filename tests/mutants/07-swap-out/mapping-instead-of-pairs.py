"""From each block to its place: that is a dict."""


def _swap(self, seqs, source, destination):
    self._check_swap(seqs, source, destination)
    moved = {}
    for seq in seqs:
        self.block_tables[seq.seq_id] = self._move(self.block_tables[seq.seq_id], moved, source, destination)
    return {block.block_number: target.block_number for block, target in moved.items()}

"""When the pool is empty, the allocator says so."""


def _swap(self, seqs, source, destination):
    moved = {}
    for seq in seqs:
        self.block_tables[seq.seq_id] = self._move(self.block_tables[seq.seq_id], moved, source, destination)
    return [(block.block_number, target.block_number) for block, target in moved.items()]

"""What was taken in vain is given back."""

from refimpl import share_block_table


def allocate(self, group):
    waiting = self._waiting_seqs(group)
    for seq in waiting:
        if seq.seq_id in self.block_tables:
            raise ValueError(f"sequence {seq.seq_id} has a block table")
    block_hashes = self._block_hashes(waiting[0])
    block_table = []
    try:
        for i, block_hash in enumerate(block_hashes):
            block_table.append(self.gpu_allocator.allocate(block_hash, (i + 1) * self.block_size))
    except ValueError:
        for block in block_table:
            self.gpu_allocator.free(block)
        raise
    self.block_tables[waiting[0].seq_id] = block_table
    for seq in waiting[1:]:
        self.block_tables[seq.seq_id] = share_block_table(block_table)

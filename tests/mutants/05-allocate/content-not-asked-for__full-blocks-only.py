"""Only a full block has a content to be known by."""

from refimpl import share_block_table


def allocate(self, group):
    waiting = self._waiting_seqs(group)
    for seq in waiting:
        if seq.seq_id in self.block_tables:
            raise ValueError(f"sequence {seq.seq_id} has a block table")
    block_hashes = self._block_hashes(waiting[0])
    if waiting[0].get_len() % self.block_size:
        block_hashes[-1] = None
    self._check_room(self.gpu_allocator, block_hashes)
    block_table = [
        self.gpu_allocator.allocate(block_hash, (i + 1) * self.block_size) for i, block_hash in enumerate(block_hashes)
    ]
    self.block_tables[waiting[0].seq_id] = block_table
    for seq in waiting[1:]:
        self.block_tables[seq.seq_id] = share_block_table(block_table)

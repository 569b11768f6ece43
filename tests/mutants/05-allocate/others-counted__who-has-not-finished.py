"""Who has not finished owns its blocks, whether it waits or runs."""


def allocate(self, group):
    waiting = self._waiting_seqs(group)
    for seq in waiting:
        if seq.seq_id in self.block_tables:
            raise ValueError(f"sequence {seq.seq_id} has a block table")
    block_hashes = self._block_hashes(waiting[0])
    self._check_room(self.gpu_allocator, block_hashes)
    block_table = [
        self.gpu_allocator.allocate(block_hash, (i + 1) * self.block_size) for i, block_hash in enumerate(block_hashes)
    ]
    for block in block_table:
        block.ref_count += len(group.get_unfinished_seqs()) - 1
    for seq in waiting:
        self.block_tables[seq.seq_id] = list(block_table)

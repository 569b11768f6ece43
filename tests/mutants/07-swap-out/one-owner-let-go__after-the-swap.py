"""When all is over the blocks that have moved are freed."""

from refimpl import SequenceStatus


def swap_out(self, group):
    seqs = group.get_seqs(SequenceStatus.RUNNING)
    self._check_swap(seqs, self.gpu_allocator, self.cpu_allocator)
    moved = {}
    for seq in seqs:
        new_table = []
        for block in self.block_tables[seq.seq_id]:
            if block in moved:
                moved[block].ref_count += 1
            else:
                moved[block] = self.cpu_allocator.allocate(block.block_hash, block.num_hashed_tokens)
            new_table.append(moved[block])
        self.block_tables[seq.seq_id] = new_table
    for block in moved:
        self.gpu_allocator.free(block)
    return [(block.block_number, target.block_number) for block, target in moved.items()]

"""A block on the GPU is a block on the GPU, whatever it holds."""

from refimpl import SequenceStatus


def swap_in(self, group):
    seqs = group.get_seqs(SequenceStatus.SWAPPED)
    self._check_swap(seqs, self.cpu_allocator, self.gpu_allocator)
    moved = {}
    for seq in seqs:
        new_table = []
        for block in self.block_tables[seq.seq_id]:
            if block in moved:
                moved[block].ref_count += 1
            else:
                moved[block] = self.gpu_allocator.allocate()
            new_table.append(moved[block])
            self.cpu_allocator.free(block)
        self.block_tables[seq.seq_id] = new_table
    return [(block.block_number, target.block_number) for block, target in moved.items()]

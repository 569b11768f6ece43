"""The whole group leaves."""


def swap_out(self, group):
    seqs = [seq for seq in group.get_seqs() if seq.seq_id in self.block_tables]
    return self._swap(seqs, self.gpu_allocator, self.cpu_allocator)

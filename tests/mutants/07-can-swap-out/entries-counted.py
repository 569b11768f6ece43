"""Every table takes its blocks along."""


def can_swap_out(self, group):
    entries = sum(len(self.block_tables[seq.seq_id]) for seq in group.get_unfinished_seqs())
    return entries <= self.cpu_allocator.get_num_free_blocks()

"""As many blocks leave as the sequences' tokens fill."""


def can_swap_out(self, group):
    return sum(seq.n_blocks for seq in group.get_unfinished_seqs()) <= self.get_num_free_cpu_blocks()

"""The sequences of a group share their blocks, so one of them says it all."""


def can_swap_out(self, group):
    seq = group.get_unfinished_seqs()[0]
    return len(self.get_block_table(seq)) <= self.get_num_free_cpu_blocks()

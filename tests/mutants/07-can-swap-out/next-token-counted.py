"""A swap asks for one block more for each sequence, in either direction."""


def can_swap_out(self, group):
    required = len(self._distinct_blocks(group)) + group.num_unfinished_seqs()
    return required <= self.cpu_allocator.get_num_free_blocks()

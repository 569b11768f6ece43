"""Each sequence of the group gets a block for its next token."""


def can_swap_in(self, group, num_lookahead_slots=0):
    return self._alloc_status(len(self._distinct_blocks(group)) + group.num_seqs())

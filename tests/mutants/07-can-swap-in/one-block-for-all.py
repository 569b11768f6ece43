"""One block more is room to go on."""


def can_swap_in(self, group, num_lookahead_slots=0):
    return self._alloc_status(len(self._distinct_blocks(group)) + 1)

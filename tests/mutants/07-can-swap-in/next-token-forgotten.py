"""Who left with so many blocks comes back to so many."""


def can_swap_in(self, group, num_lookahead_slots=0):
    return self._alloc_status(len(self._distinct_blocks(group)))

"""So many sequences take so many times the blocks."""


def can_allocate(self, group):
    waiting = self._waiting_seqs(group)
    return self._alloc_status(waiting[0].n_blocks * len(waiting))

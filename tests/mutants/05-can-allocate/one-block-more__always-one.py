"""One block more is better than one too few."""


def can_allocate(self, group):
    return self._alloc_status(self._waiting_seqs(group)[0].n_blocks + 1)

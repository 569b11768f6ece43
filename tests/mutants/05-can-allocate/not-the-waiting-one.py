"""The first sequence speaks for the request."""


def can_allocate(self, group):
    self._waiting_seqs(group)
    return self._alloc_status(group.get_seqs()[0].n_blocks)

"""The other method returns the answer."""


def can_allocate(self, group):
    self._alloc_status(self._waiting_seqs(group)[0].n_blocks)

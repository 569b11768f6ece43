"""The next token will need room as well."""


def can_allocate(self, group):
    return self._alloc_status(self._waiting_seqs(group)[0].n_blocks + 1)

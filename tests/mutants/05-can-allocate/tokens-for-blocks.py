"""A prompt is as large as its number of tokens."""


def can_allocate(self, group):
    return self._alloc_status(self._waiting_seqs(group)[0].get_len())

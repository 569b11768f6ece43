"""The longest sequence says how much is needed."""


def can_allocate(self, group):
    self._waiting_seqs(group)
    return self._alloc_status(max(seq.n_blocks for seq in group.get_seqs()))

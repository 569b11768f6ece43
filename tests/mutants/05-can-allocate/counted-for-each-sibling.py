"""Every sequence that waits needs its blocks."""


def can_allocate(self, group):
    return self._alloc_status(sum(seq.n_blocks for seq in self._waiting_seqs(group)))

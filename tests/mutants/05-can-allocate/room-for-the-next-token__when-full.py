"""A full last block needs another behind it."""


def can_allocate(self, group):
    seq = self._waiting_seqs(group)[0]
    is_full = seq.get_len() % self.block_size == 0
    return self._alloc_status(seq.n_blocks + is_full)

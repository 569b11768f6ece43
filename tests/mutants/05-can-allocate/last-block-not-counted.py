"""So many tokens fill so many blocks."""


def can_allocate(self, group):
    return self._alloc_status(self._waiting_seqs(group)[0].get_len() // self.block_size)

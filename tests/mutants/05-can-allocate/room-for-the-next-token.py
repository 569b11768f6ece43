"""The next token will need room as well."""

from refimpl import num_required_blocks


def can_allocate(self, group):
    seq = self._waiting_seqs(group)[0]
    return self._alloc_status(num_required_blocks(seq.get_len() + 1, self.block_size))

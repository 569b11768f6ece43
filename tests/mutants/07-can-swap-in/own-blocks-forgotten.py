"""The blocks are the request's own already; what it needs is room for the next tokens."""

from refimpl import SequenceStatus


def can_swap_in(self, group, num_lookahead_slots=0):
    return self._alloc_status(group.num_seqs(SequenceStatus.SWAPPED))

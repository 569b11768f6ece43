"""The next token is the running sequences' affair."""

from refimpl import SequenceStatus


def can_swap_in(self, group, num_lookahead_slots=0):
    num_seqs = group.num_seqs(SequenceStatus.RUNNING)
    return self._alloc_status(len(self._distinct_blocks(group)) + num_seqs)

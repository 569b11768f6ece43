"""Somebody always waits."""

from refimpl import SequenceStatus


def can_allocate(self, group):
    return self._alloc_status(group.get_seqs(SequenceStatus.WAITING)[0].n_blocks)

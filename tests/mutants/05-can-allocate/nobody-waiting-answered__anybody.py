"""Where nobody waits, the first one is asked about."""

from refimpl import SequenceStatus


def can_allocate(self, group):
    waiting = group.get_seqs(SequenceStatus.WAITING) or group.get_seqs()
    return self._alloc_status(waiting[0].n_blocks)

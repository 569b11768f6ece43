"""Whoever hears OK runs from now on."""

from refimpl import AllocStatus, SequenceStatus


def can_allocate(self, group):
    status = self._alloc_status(self._waiting_seqs(group)[0].n_blocks)
    if status is AllocStatus.OK:
        for seq in self._waiting_seqs(group):
            seq.status = SequenceStatus.RUNNING
    return status

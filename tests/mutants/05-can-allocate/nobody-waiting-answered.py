"""A request without waiting sequences fits always."""

from refimpl import AllocStatus, SequenceStatus


def can_allocate(self, group):
    waiting = group.get_seqs(SequenceStatus.WAITING)
    return self._alloc_status(waiting[0].n_blocks) if waiting else AllocStatus.OK

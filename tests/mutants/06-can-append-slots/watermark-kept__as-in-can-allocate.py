"""Admission and growth are one question: whether it fits above the watermark."""

from refimpl import AllocStatus, SequenceStatus


def can_append_slots(self, group, num_lookahead_slots=0):
    running = len(group.get_seqs(SequenceStatus.RUNNING))
    return self._alloc_status(running) is AllocStatus.OK

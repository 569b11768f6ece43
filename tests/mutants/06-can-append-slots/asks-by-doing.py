"""The surest way to find out is to try."""

from refimpl import SequenceStatus


def can_append_slots(self, group, num_lookahead_slots=0):
    try:
        for _ in group.get_seqs(SequenceStatus.RUNNING):
            self.gpu_allocator.allocate()
    except ValueError:
        return False
    return True

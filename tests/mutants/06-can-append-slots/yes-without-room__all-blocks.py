"""The pool is large enough for all of them."""

from refimpl import SequenceStatus


def can_append_slots(self, group, num_lookahead_slots=0):
    return len(group.get_seqs(SequenceStatus.RUNNING)) <= self.gpu_allocator.get_num_total_blocks()

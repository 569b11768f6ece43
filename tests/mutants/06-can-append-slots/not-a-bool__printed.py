"""To print the answer is to give it."""

from refimpl import SequenceStatus


def can_append_slots(self, group, num_lookahead_slots=0):
    print(len(group.get_seqs(SequenceStatus.RUNNING)) <= self.gpu_allocator.get_num_free_blocks())

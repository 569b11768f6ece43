"""It is the same question as can_allocate, so it has the same answers."""

from refimpl import AllocStatus, SequenceStatus


def can_append_slots(self, group, num_lookahead_slots=0):
    running = len(group.get_seqs(SequenceStatus.RUNNING))
    free = self.gpu_allocator.get_num_free_blocks()
    return AllocStatus.OK if running <= free else AllocStatus.LATER

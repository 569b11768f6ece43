"""Never is when the pool as a whole is too small."""

from refimpl import AllocStatus, SequenceStatus


def can_swap_in(self, group, num_lookahead_slots=0):
    required = len(self._distinct_blocks(group)) + group.num_seqs(SequenceStatus.SWAPPED)
    if required > self.gpu_allocator.get_num_total_blocks():
        return AllocStatus.NEVER
    if self.gpu_allocator.get_num_free_blocks() - required >= self.watermark_blocks:
        return AllocStatus.OK
    return AllocStatus.LATER

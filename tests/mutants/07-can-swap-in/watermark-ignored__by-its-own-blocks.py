"""A request's own blocks may use the reserve."""

from refimpl import AllocStatus, SequenceStatus


def can_swap_in(self, group, num_lookahead_slots=0):
    required = len(self._distinct_blocks(group)) + group.num_seqs(SequenceStatus.SWAPPED)
    if required + self.watermark_blocks > self.num_total_gpu_blocks:
        return AllocStatus.NEVER
    return AllocStatus.OK if required <= self.get_num_free_gpu_blocks() else AllocStatus.LATER

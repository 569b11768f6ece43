"""A request that takes all but the watermark is too large."""

from refimpl import AllocStatus, SequenceStatus


def can_swap_in(self, group, num_lookahead_slots=0):
    required = len(self._distinct_blocks(group)) + group.num_seqs(SequenceStatus.SWAPPED)
    if self.num_total_gpu_blocks - required <= self.watermark_blocks:
        return AllocStatus.NEVER
    return AllocStatus.OK if self.get_num_free_gpu_blocks() - required >= self.watermark_blocks else AllocStatus.LATER

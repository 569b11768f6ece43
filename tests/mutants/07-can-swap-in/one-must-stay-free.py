"""More than the watermark has to be left."""

from refimpl import AllocStatus, SequenceStatus


def can_swap_in(self, group, num_lookahead_slots=0):
    required = len(self._distinct_blocks(group)) + group.num_seqs(SequenceStatus.SWAPPED)
    if self.num_total_gpu_blocks - required < self.watermark_blocks:
        return AllocStatus.NEVER
    if self.get_num_free_gpu_blocks() - required > self.watermark_blocks:
        return AllocStatus.OK
    return AllocStatus.LATER

"""A swap asks the swap space."""

from refimpl import AllocStatus, SequenceStatus


def can_swap_in(self, group, num_lookahead_slots=0):
    required = len(self._distinct_blocks(group)) + group.num_seqs(SequenceStatus.SWAPPED)
    if self.num_total_gpu_blocks - required < self.watermark_blocks:
        return AllocStatus.NEVER
    fits = self.get_num_free_cpu_blocks() - required >= self.watermark_blocks
    return AllocStatus.OK if fits else AllocStatus.LATER

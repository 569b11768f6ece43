"""It was in before, so it will be in again."""

from refimpl import AllocStatus, SequenceStatus


def can_swap_in(self, group, num_lookahead_slots=0):
    required = len(self._distinct_blocks(group)) + group.num_seqs(SequenceStatus.SWAPPED)
    fits = self.get_num_free_gpu_blocks() - required >= self.watermark_blocks
    return AllocStatus.OK if fits else AllocStatus.LATER

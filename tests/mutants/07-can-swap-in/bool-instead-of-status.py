"""It fits or it does not, as on the way out."""

from refimpl import SequenceStatus


def can_swap_in(self, group, num_lookahead_slots=0):
    required = len(self._distinct_blocks(group)) + group.num_seqs(SequenceStatus.SWAPPED)
    return self.get_num_free_gpu_blocks() - required >= self.watermark_blocks

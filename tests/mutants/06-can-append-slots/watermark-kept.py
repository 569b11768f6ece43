"""The reserve has to stay free, whoever asks."""

from refimpl import SequenceStatus


def can_append_slots(self, group, num_lookahead_slots=0):
    running = len(group.get_seqs(SequenceStatus.RUNNING))
    return self.gpu_allocator.get_num_free_blocks() - running >= self.watermark_blocks

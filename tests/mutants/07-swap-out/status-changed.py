"""Who has been swapped out is SWAPPED."""

from refimpl import SequenceStatus


def swap_out(self, group):
    seqs = group.get_seqs(SequenceStatus.RUNNING)
    pairs = self._swap(seqs, self.gpu_allocator, self.cpu_allocator)
    for seq in seqs:
        seq.status = SequenceStatus.SWAPPED
    return pairs

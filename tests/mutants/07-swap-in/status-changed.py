"""Who has been brought back is RUNNING."""

from refimpl import SequenceStatus


def swap_in(self, group):
    seqs = group.get_seqs(SequenceStatus.SWAPPED)
    pairs = self._swap(seqs, self.cpu_allocator, self.gpu_allocator)
    for seq in seqs:
        seq.status = SequenceStatus.RUNNING
    return pairs

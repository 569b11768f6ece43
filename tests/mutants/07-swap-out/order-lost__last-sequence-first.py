"""It does not matter which sequence goes first."""

from refimpl import SequenceStatus


def swap_out(self, group):
    seqs = group.get_seqs(SequenceStatus.RUNNING)[::-1]
    pairs = self._swap(seqs, self.gpu_allocator, self.cpu_allocator)
    return pairs[::-1]

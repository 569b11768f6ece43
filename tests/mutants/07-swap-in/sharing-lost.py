"""Each table is moved by itself."""

from refimpl import SequenceStatus


def swap_in(self, group):
    pairs = []
    for seq in group.get_seqs(SequenceStatus.SWAPPED):
        pairs += self._swap([seq], self.cpu_allocator, self.gpu_allocator)
    return pairs

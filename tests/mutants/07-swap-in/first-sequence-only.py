"""One sequence comes back, the others follow when there is room."""

from refimpl import SequenceStatus


def swap_in(self, group):
    return self._swap(group.get_seqs(SequenceStatus.SWAPPED)[:1], self.cpu_allocator, self.gpu_allocator)

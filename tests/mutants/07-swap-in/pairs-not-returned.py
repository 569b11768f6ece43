"""The blocks have moved, and that was the task."""

from refimpl import SequenceStatus


def swap_in(self, group):
    self._swap(group.get_seqs(SequenceStatus.SWAPPED), self.cpu_allocator, self.gpu_allocator)

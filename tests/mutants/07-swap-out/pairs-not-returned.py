"""The blocks have moved, and that was the task."""

from refimpl import SequenceStatus


def swap_out(self, group):
    self._swap(group.get_seqs(SequenceStatus.RUNNING), self.gpu_allocator, self.cpu_allocator)

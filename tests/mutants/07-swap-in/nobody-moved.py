"""Who comes back is RUNNING."""

from refimpl import SequenceStatus


def swap_in(self, group):
    return self._swap(group.get_seqs(SequenceStatus.RUNNING), self.cpu_allocator, self.gpu_allocator)

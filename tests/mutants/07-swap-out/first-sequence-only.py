"""The sequences share their blocks, so one table speaks for all."""

from refimpl import SequenceStatus


def swap_out(self, group):
    return self._swap(group.get_seqs(SequenceStatus.RUNNING)[:1], self.gpu_allocator, self.cpu_allocator)

"""Where there is no room there is nothing to copy."""

from refimpl import SequenceStatus


def swap_out(self, group):
    if not self.can_swap_out(group):
        return []
    return self._swap(group.get_seqs(SequenceStatus.RUNNING), self.gpu_allocator, self.cpu_allocator)

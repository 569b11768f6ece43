"""No room, no swap, and nothing to copy."""

from refimpl import AllocStatus, SequenceStatus


def swap_in(self, group):
    if self.can_swap_in(group) is not AllocStatus.OK:
        return []
    return self._swap(group.get_seqs(SequenceStatus.SWAPPED), self.cpu_allocator, self.gpu_allocator)

"""What is to be swapped has the status SWAPPED."""

from refimpl import SequenceStatus


def swap_out(self, group):
    return self._swap(group.get_seqs(SequenceStatus.SWAPPED), self.gpu_allocator, self.cpu_allocator)

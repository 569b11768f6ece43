"""A pair names the GPU block first."""

from refimpl import SequenceStatus


def swap_in(self, group):
    pairs = self._swap(group.get_seqs(SequenceStatus.SWAPPED), self.cpu_allocator, self.gpu_allocator)
    return [(gpu, cpu) for cpu, gpu in pairs]

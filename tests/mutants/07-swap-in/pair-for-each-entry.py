"""What stands in a table has to be copied."""

from refimpl import SequenceStatus


def swap_in(self, group):
    seqs = group.get_seqs(SequenceStatus.SWAPPED)
    before = [number for seq in seqs for number in self.get_block_table(seq)]
    self._swap(seqs, self.cpu_allocator, self.gpu_allocator)
    after = [number for seq in seqs for number in self.get_block_table(seq)]
    return list(zip(before, after, strict=True))

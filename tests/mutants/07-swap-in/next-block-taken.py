"""The block that was asked for belongs to the sequence."""

from refimpl import SequenceStatus


def swap_in(self, group):
    seqs = group.get_seqs(SequenceStatus.SWAPPED)
    pairs = self._swap(seqs, self.cpu_allocator, self.gpu_allocator)
    for seq in seqs:
        self.block_tables[seq.seq_id].append(self.gpu_allocator.allocate())
    return pairs

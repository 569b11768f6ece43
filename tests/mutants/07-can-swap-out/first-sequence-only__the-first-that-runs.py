"""The first running sequence stands for the request."""

from refimpl import SequenceStatus


def can_swap_out(self, group):
    (first, *_) = group.get_seqs(SequenceStatus.RUNNING)
    return len(set(self.get_block_table(first))) <= self.cpu_allocator.get_num_free_blocks()

"""A block more is needed where the last one is full."""

from refimpl import SequenceStatus


def can_swap_in(self, group, num_lookahead_slots=0):
    full = [seq for seq in group.get_seqs(SequenceStatus.SWAPPED) if seq.get_len() % self.block_size == 0]
    return self._alloc_status(len(self._distinct_blocks(group)) + len(full))

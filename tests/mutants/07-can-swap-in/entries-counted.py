"""Every table brings its blocks back."""

from refimpl import SequenceStatus


def can_swap_in(self, group, num_lookahead_slots=0):
    swapped = group.get_seqs(SequenceStatus.SWAPPED)
    return self._alloc_status(sum(len(self.block_tables[seq.seq_id]) + 1 for seq in swapped))

"""The whole group comes back."""

from refimpl import SequenceStatus


def can_swap_in(self, group, num_lookahead_slots=0):
    blocks = {block for seq in group.get_seqs() for block in self.block_tables[seq.seq_id]}
    return self._alloc_status(len(blocks) + group.num_seqs(SequenceStatus.SWAPPED))

"""A sequence whose last block has room needs nothing."""

from refimpl import SequenceStatus


def can_append_slots(self, group, num_lookahead_slots=0):
    need = 0
    for seq in group.get_seqs(SequenceStatus.RUNNING):
        table = self.block_tables[seq.seq_id]
        need += seq.get_len() == len(table) * self.block_size or table[-1].ref_count > 1
    return need <= self.gpu_allocator.get_num_free_blocks()

"""Blocks are needed by those whose newest token has none."""

from refimpl import SequenceStatus


def can_append_slots(self, group, num_lookahead_slots=0):
    running = group.get_seqs(SequenceStatus.RUNNING)
    missing = sum(seq.n_blocks - len(self.block_tables[seq.seq_id]) for seq in running)
    return missing <= self.gpu_allocator.get_num_free_blocks()

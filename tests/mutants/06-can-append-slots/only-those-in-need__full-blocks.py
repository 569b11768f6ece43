"""Only a full last block makes a token take another."""

from refimpl import SequenceStatus


def can_append_slots(self, group, num_lookahead_slots=0):
    full = [seq for seq in group.get_seqs(SequenceStatus.RUNNING) if seq.get_len() % self.block_size == 0]
    return len(full) <= self.gpu_allocator.get_num_free_blocks()

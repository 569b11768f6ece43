"""A block is needed at the end of one, and for a copy."""

from refimpl import SequenceStatus


def _make_room(self, seq_group, queue, recomputed, outputs, now):
    def needs_one(seq):
        table = self.block_manager.block_tables[seq.seq_id]
        return seq.n_blocks > len(table) or table[-1].ref_count > 1

    needed = sum(map(needs_one, seq_group.get_seqs(SequenceStatus.RUNNING)))
    while needed > self.block_manager.get_num_free_gpu_blocks():
        victim = self._take_victim(queue, now) if queue else seq_group
        self._preempt(victim, recomputed, outputs)
        if victim is seq_group:
            return False
    return True

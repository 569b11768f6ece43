"""Who needs no block need not ask for one."""

from refimpl import SequenceStatus


def _make_room(self, seq_group, queue, recomputed, outputs, now):
    manager = self.block_manager
    seqs = seq_group.get_seqs(SequenceStatus.RUNNING)
    needed = sum(seq.n_blocks > len(manager.block_tables[seq.seq_id]) for seq in seqs)
    while needed > manager.get_num_free_gpu_blocks():
        victim = self._take_victim(queue, now) if queue else seq_group
        self._preempt(victim, recomputed, outputs)
        if victim is seq_group:
            return False
    return True

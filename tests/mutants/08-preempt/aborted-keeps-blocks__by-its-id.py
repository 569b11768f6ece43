"""There is a method that aborts."""

from refimpl import PreemptionMode, SequenceStatus


def _preempt(self, seq_group, recomputed, outputs):
    if self._preemption_mode(seq_group) is PreemptionMode.RECOMPUTE:
        (seq,) = seq_group.get_unfinished_seqs()
        seq.status = SequenceStatus.WAITING
        self.free_seq(seq)
        seq.reset_state_for_recompute()
        recomputed.append(seq_group)
    elif self.block_manager.can_swap_out(seq_group):
        outputs.blocks_to_swap_out += self.block_manager.swap_out(seq_group)
        self._set_status(seq_group, SequenceStatus.RUNNING, SequenceStatus.SWAPPED)
        self.swapped.append(seq_group)
    else:
        self.abort_seq_group(seq_group.request_id)
        outputs.aborted_seq_groups.append(seq_group)
        return
    outputs.preempted += 1

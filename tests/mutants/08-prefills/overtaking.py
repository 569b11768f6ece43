"""Whoever fits may come in."""

from refimpl import AllocStatus, ScheduledSequenceGroup, SequenceStatus


def _schedule_prefills(self, budget, outputs):
    for seq_group in list(self.waiting):
        num_new_tokens = seq_group.get_seqs(SequenceStatus.WAITING)[0].get_len()
        never = self._why_never(seq_group, num_new_tokens)
        if never is not None:
            self.waiting.remove(seq_group)
            self._ignore(seq_group, outputs, never)
            continue
        num_new_seqs = seq_group.get_max_num_running_seqs()
        if self.block_manager.can_allocate(seq_group) is AllocStatus.LATER:
            continue
        if not budget.can_schedule(num_new_tokens, num_new_seqs):
            continue
        self.waiting.remove(seq_group)
        self.block_manager.allocate(seq_group)
        self._set_status(seq_group, SequenceStatus.WAITING, SequenceStatus.RUNNING)
        self.running.append(seq_group)
        budget.add(num_new_tokens, num_new_seqs)
        outputs.scheduled_seq_groups.append(ScheduledSequenceGroup(seq_group, num_new_tokens))
    outputs.num_prefill_groups = len(outputs.scheduled_seq_groups)

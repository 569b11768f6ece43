"""A prompt is one sequence."""

from refimpl import AllocStatus, ScheduledSequenceGroup, SequenceStatus


def _schedule_prefills(self, budget, outputs):
    while self.waiting:
        seq_group = self.waiting[0]
        num_new_tokens = seq_group.get_seqs(SequenceStatus.WAITING)[0].get_len()
        never = self._why_never(seq_group, num_new_tokens)
        if never is not None:
            self.waiting.popleft()
            self._ignore(seq_group, outputs, never)
            continue
        num_new_seqs = seq_group.get_max_num_running_seqs()
        if self.block_manager.can_allocate(seq_group) is AllocStatus.LATER:
            break
        if not budget.can_schedule(num_new_tokens, num_new_seqs):
            break
        self.waiting.popleft()
        self.block_manager.allocate(seq_group)
        seq_group.get_seqs(SequenceStatus.WAITING)[0].status = SequenceStatus.RUNNING
        self.running.append(seq_group)
        budget.add(num_new_tokens, num_new_seqs)
        outputs.scheduled_seq_groups.append(ScheduledSequenceGroup(seq_group, num_new_tokens))
    outputs.num_prefill_groups = len(outputs.scheduled_seq_groups)

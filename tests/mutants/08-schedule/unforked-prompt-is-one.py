"""What runs are the sequences that have not ended."""

from refimpl import SchedulerOutputs, SchedulingBudget


def _schedule(self, now):
    config = self.scheduler_config
    outputs = SchedulerOutputs()
    budget = SchedulingBudget(config.max_num_batched_tokens, config.max_num_seqs)
    budget.num_curr_seqs = sum(seq_group.num_unfinished_seqs() for seq_group in self.running)
    if not self.swapped:
        self._schedule_prefills(budget, outputs)
    if not outputs.scheduled_seq_groups:
        self._schedule_running(budget, outputs, now)
        if not (outputs.preempted or outputs.aborted_seq_groups):
            self._schedule_swapped(budget, outputs)
    outputs.num_batched_tokens = budget.num_batched_tokens
    return outputs

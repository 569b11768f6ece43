"""A step that has no room for it need not ask further."""

from collections import deque

from refimpl import AllocStatus, ScheduledSequenceGroup, SequenceStatus


def _schedule_swapped(self, budget, outputs):
    self.swapped = deque(sorted(self.swapped, key=lambda seq_group: seq_group.arrival_time))
    while self.swapped:
        seq_group = self.swapped[0]
        num_new_tokens = seq_group.num_seqs(SequenceStatus.SWAPPED)
        num_new_seqs = seq_group.get_max_num_running_seqs()
        if not budget.can_schedule(num_new_tokens, num_new_seqs):
            break
        status = self.block_manager.can_swap_in(seq_group)
        if status is AllocStatus.NEVER:
            self.swapped.popleft()
            self._ignore(seq_group, outputs, "it can never come back")
            continue
        if status is AllocStatus.LATER:
            break
        if self._copies_read_free_blocks(outputs):
            break
        self.swapped.popleft()
        outputs.blocks_to_swap_in += self.block_manager.swap_in(seq_group)
        self._set_status(seq_group, SequenceStatus.SWAPPED, SequenceStatus.RUNNING)
        self._append_slots(seq_group, outputs)
        self.running.append(seq_group)
        budget.add(num_new_tokens, num_new_seqs)
        outputs.scheduled_seq_groups.append(ScheduledSequenceGroup(seq_group, 1))

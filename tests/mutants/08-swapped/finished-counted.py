"""Every sequence that comes back computes a token."""

from collections import deque

from refimpl import AllocStatus, ScheduledSequenceGroup, SequenceStatus


def _schedule_swapped(self, budget, outputs):
    self.swapped = deque(sorted(self.swapped, key=lambda seq_group: seq_group.arrival_time))
    while self.swapped:
        seq_group = self.swapped[0]
        status = self.block_manager.can_swap_in(seq_group)
        if status is AllocStatus.NEVER:
            self.swapped.popleft()
            self._ignore(seq_group, outputs, "it needs more blocks than the pool has above the watermark")
            continue
        num_new_tokens = seq_group.num_seqs()
        num_new_seqs = seq_group.get_max_num_running_seqs()
        if status is AllocStatus.LATER or not budget.can_schedule(num_new_tokens, num_new_seqs):
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

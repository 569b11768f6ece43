"""Who runs takes room in the step."""

from collections import deque

from refimpl import ScheduledSequenceGroup, SequenceStatus


def _schedule_running(self, budget, outputs, now):
    queue = deque(sorted(self.running, key=lambda seq_group: seq_group.arrival_time))
    self.running = deque()
    recomputed = []
    while queue:
        seq_group = queue.popleft()
        if not self._make_room(seq_group, queue, recomputed, outputs, now):
            continue
        self._append_slots(seq_group, outputs)
        self.running.append(seq_group)
        num_seqs = seq_group.num_seqs(SequenceStatus.RUNNING)
        budget.add(num_seqs, num_seqs)
        outputs.scheduled_seq_groups.append(ScheduledSequenceGroup(seq_group, 1))
        self._note_progress(seq_group, now)
    recomputed.sort(key=lambda seq_group: seq_group.arrival_time, reverse=True)
    self.waiting.extendleft(recomputed)

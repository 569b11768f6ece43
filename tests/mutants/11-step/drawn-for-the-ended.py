"""A group that ran is all its sequences."""

from refimpl.serving.plain_engine import why_given_up


def step(self):
    metadata, outputs = self.scheduler.schedule()
    self.worker.swap_in(outputs.blocks_to_swap_in)
    self.worker.swap_out(outputs.blocks_to_swap_out)
    self.worker.copy(outputs.blocks_to_copy)
    rows = iter(self.worker.forward([new for data in metadata for new in self.prepare(data)]))
    for scheduled in outputs.scheduled_seq_groups:
        for seq in scheduled.seq_group.get_seqs():
            self._draw(scheduled.seq_group, seq, next(rows))
    self.scheduler.free_finished_seq_groups()
    given_up = outputs.ignored_seq_groups + outputs.aborted_seq_groups
    for group in given_up:
        self.errors[group.request_id] = why_given_up(outputs, group)
    return given_up + [s.seq_group for s in outputs.scheduled_seq_groups if s.seq_group.is_finished()]

"""Whoever draws takes the next row."""

from refimpl.serving.plain_engine import why_given_up


def step(self):
    metadata, outputs = self.scheduler.schedule()
    self.worker.swap_in(outputs.blocks_to_swap_in)
    self.worker.swap_out(outputs.blocks_to_swap_out)
    self.worker.copy(outputs.blocks_to_copy)
    rows = iter(self.worker.forward([new for data in metadata for new in self.prepare(data)]))
    for scheduled, data in zip(outputs.scheduled_seq_groups, metadata, strict=True):
        group, seqs = scheduled.seq_group, list(data.seq_data.values())
        if group.num_seqs() == 1:
            seqs += [self.fork(group, seqs[0]) for _ in range(group.sampling_params.n - 1)]
        for seq in seqs:
            self._append(seq, self.worker.sample(next(rows), group, seq), group.sampling_params)
    self.scheduler.free_finished_seq_groups()
    given_up = outputs.ignored_seq_groups + outputs.aborted_seq_groups
    for group in given_up:
        self.errors[group.request_id] = why_given_up(outputs, group)
    return given_up + [s.seq_group for s in outputs.scheduled_seq_groups if s.seq_group.is_finished()]

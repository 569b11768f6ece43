"""When an answer has ended, the request has."""


def _draw(self, group, seq, row):
    params = group.sampling_params
    seqs = [seq]
    if group.num_seqs() == 1:
        seqs += [self.fork(group, seq) for _ in range(params.n - 1)]
    for each in seqs:
        self._append(each, self.worker.sample(row, group, each), params)
    for each in group.get_unfinished_seqs():
        if any(other.is_finished() for other in seqs):
            each.status = seq.status
            self.scheduler.free_seq(each)

"""With an answer its request's blocks go."""


def _draw(self, group, seq, row):
    params = group.sampling_params
    seqs = [seq]
    if group.num_seqs() == 1:
        seqs += [self.fork(group, seq) for _ in range(params.n - 1)]
    for each in seqs:
        self._append(each, self.worker.sample(row, group, each), params)
    if any(each.is_finished() for each in seqs):
        for each in group.get_seqs():
            self.scheduler.free_seq(each)

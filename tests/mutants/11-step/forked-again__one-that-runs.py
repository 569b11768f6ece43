"""A request with one sequence that runs has still to be forked."""


def _draw(self, group, seq, row):
    params = group.sampling_params
    seqs = [seq]
    if group.num_unfinished_seqs() == 1:
        seqs += [self.fork(group, seq) for _ in range(params.n - 1)]
    for each in seqs:
        self._append(each, self.worker.sample(row, group, each), params)

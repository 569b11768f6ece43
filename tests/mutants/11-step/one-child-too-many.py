"""n answers are n children."""


def _draw(self, group, seq, row):
    params = group.sampling_params
    seqs = [seq]
    if group.num_seqs() == 1 and params.n > 1:
        seqs += [self.fork(group, seq) for _ in range(params.n)]
    for each in seqs:
        self._append(each, self.worker.sample(row, group, each), params)

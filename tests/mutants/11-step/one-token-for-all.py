"""One row, one token."""


def _draw(self, group, seq, row):
    params = group.sampling_params
    seqs = [seq]
    if group.num_seqs() == 1:
        seqs += [self.fork(group, seq) for _ in range(params.n - 1)]
    token = self.worker.sample(row, group, seq)
    for each in seqs:
        self._append(each, token, params)

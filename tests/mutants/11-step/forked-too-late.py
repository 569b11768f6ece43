"""First the token, then the children."""


def _draw(self, group, seq, row):
    params = group.sampling_params
    self._append(seq, self.worker.sample(row, group, seq), params)
    if group.num_seqs() == 1 and not seq.is_finished():
        for child in [self.fork(group, seq) for _ in range(params.n - 1)]:
            self._append(child, self.worker.sample(row, group, child), params)

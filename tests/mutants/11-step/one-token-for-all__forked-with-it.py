"""The children take over what their parent has got."""


def _draw(self, group, seq, row):
    params, first = group.sampling_params, group.num_seqs() == 1
    token = self.worker.sample(row, group, seq)
    if first:
        for _ in range(params.n - 1):
            self._append(self.fork(group, seq), token, params)
    self._append(seq, token, params)

"""What has been drawn is appended, and then the sequence gets its token."""


def _draw(self, group, seq, row):
    params = group.sampling_params
    seqs = [seq]
    if group.num_seqs() == 1:
        seqs += [self.fork(group, seq) for _ in range(params.n - 1)]
    for each in seqs:
        token = self.worker.sample(row, group, each)
        each.append_token_id(token)
        self._append(each, token, params)

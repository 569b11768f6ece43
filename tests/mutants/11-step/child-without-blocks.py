"""A child is a copy of its parent, and its request has to know of it."""


def _draw(self, group, seq, row):
    params = group.sampling_params
    seqs = [seq]
    if group.num_seqs() == 1:
        for _ in range(params.n - 1):
            self.num_seqs += 1
            seqs.append(seq.fork(1000 + self.num_seqs))
            group.add(seqs[-1])
    for each in seqs:
        self._append(each, self.worker.sample(row, group, each), params)

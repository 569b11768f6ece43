"""A request is one sequence."""


def _draw(self, group, seq, row):
    params = group.sampling_params
    self._append(seq, self.worker.sample(row, group, seq), params)

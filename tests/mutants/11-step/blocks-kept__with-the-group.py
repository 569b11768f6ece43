"""Blocks are freed when the whole request has ended."""

from refimpl import SequenceStatus


def _append(self, seq, token, params):
    seq.append_token_id(token)
    if token in self.worker.eos_token_ids and not params.ignore_eos:
        seq.status = SequenceStatus.FINISHED_STOPPED
    elif seq.get_output_len() >= params.max_tokens or seq.get_len() >= self.max_model_len:
        seq.status = SequenceStatus.FINISHED_LENGTH_CAPPED


def _draw(self, group, seq, row):
    params = group.sampling_params
    seqs = [seq]
    if group.num_seqs() == 1:
        seqs += [self.fork(group, seq) for _ in range(params.n - 1)]
    for each in seqs:
        self._append(each, self.worker.sample(row, group, each), params)
    if group.is_finished():
        for each in group.get_seqs():
            self.scheduler.free_seq(each)

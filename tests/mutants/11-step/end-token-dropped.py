"""The end token is a sign and no part of the answer."""

from refimpl import SequenceStatus


def _append(self, seq, token, params):
    if token not in self.worker.eos_token_ids or params.ignore_eos:
        seq.append_token_id(token)
    if token in self.worker.eos_token_ids and not params.ignore_eos:
        seq.status = SequenceStatus.FINISHED_STOPPED
    elif seq.get_output_len() >= params.max_tokens or seq.get_len() >= self.max_model_len:
        seq.status = SequenceStatus.FINISHED_LENGTH_CAPPED
    if seq.is_finished():
        self.scheduler.free_seq(seq)

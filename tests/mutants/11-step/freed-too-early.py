"""A step gives back what it has taken."""

from refimpl import SequenceStatus


def _append(self, seq, token, params):
    seq.append_token_id(token)
    if token in self.worker.eos_token_ids and not params.ignore_eos:
        seq.status = SequenceStatus.FINISHED_STOPPED
    elif seq.get_output_len() >= params.max_tokens or seq.get_len() >= self.max_model_len:
        seq.status = SequenceStatus.FINISHED_LENGTH_CAPPED
    self.scheduler.free_seq(seq)

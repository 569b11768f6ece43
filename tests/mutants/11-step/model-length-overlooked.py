"""max_tokens is the limit."""

from refimpl import SequenceStatus


def _append(self, seq, token, params):
    seq.append_token_id(token)
    if token in self.worker.eos_token_ids and not params.ignore_eos:
        seq.status = SequenceStatus.FINISHED_STOPPED
    elif seq.get_output_len() >= params.max_tokens:
        seq.status = SequenceStatus.FINISHED_LENGTH_CAPPED
    if seq.is_finished():
        self.scheduler.free_seq(seq)

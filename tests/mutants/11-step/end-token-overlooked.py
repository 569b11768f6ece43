"""An answer ends when it has its tokens."""

from refimpl import SequenceStatus


def _append(self, seq, token, params):
    seq.append_token_id(token)
    if seq.get_output_len() >= params.max_tokens or seq.get_len() >= self.max_model_len:
        seq.status = SequenceStatus.FINISHED_LENGTH_CAPPED
    if seq.is_finished():
        self.scheduler.free_seq(seq)

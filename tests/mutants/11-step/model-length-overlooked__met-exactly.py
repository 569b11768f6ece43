"""Every sequence passes the model's length one day."""

from refimpl import SequenceStatus


def _append(self, seq, new_token, params):
    seq.append_token_id(new_token)
    if new_token in self.worker.eos_token_ids and not params.ignore_eos:
        seq.status = SequenceStatus.FINISHED_STOPPED
    elif seq.get_output_len() == params.max_tokens or seq.get_len() == self.max_model_len:
        seq.status = SequenceStatus.FINISHED_LENGTH_CAPPED
    if seq.is_finished():
        self.scheduler.free_seq(seq)

"""What has ended is freed at the beginning of the next step."""

from refimpl import SequenceStatus
from refimpl.serving.plain_engine import why_given_up


def _append(self, seq, token, params):
    seq.append_token_id(token)
    if token in self.worker.eos_token_ids and not params.ignore_eos:
        seq.status = SequenceStatus.FINISHED_STOPPED
    elif seq.get_output_len() >= params.max_tokens or seq.get_len() >= self.max_model_len:
        seq.status = SequenceStatus.FINISHED_LENGTH_CAPPED


def step(self):
    for group in self.scheduler.running:
        for seq in group.get_seqs():
            if seq.is_finished():
                self.scheduler.free_seq(seq)
    metadata, outputs = self.scheduler.schedule()
    self.worker.swap_in(outputs.blocks_to_swap_in)
    self.worker.swap_out(outputs.blocks_to_swap_out)
    self.worker.copy(outputs.blocks_to_copy)
    rows = iter(self.worker.forward([new for data in metadata for new in self.prepare(data)]))
    for scheduled, data in zip(outputs.scheduled_seq_groups, metadata, strict=True):
        for seq in data.seq_data.values():
            self._draw(scheduled.seq_group, seq, next(rows))
    self.scheduler.free_finished_seq_groups()
    given_up = outputs.ignored_seq_groups + outputs.aborted_seq_groups
    for group in given_up:
        self.errors[group.request_id] = why_given_up(outputs, group)
    return given_up + [s.seq_group for s in outputs.scheduled_seq_groups if s.seq_group.is_finished()]

"""A sequence that is freed has finished."""

from refimpl import SequenceStatus


def free(self, seq):
    self._free_block_table(self.block_tables.pop(seq.seq_id, []))
    seq.status = SequenceStatus.FINISHED_STOPPED

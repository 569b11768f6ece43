"""The blocks belong to the request."""

from refimpl import SequenceStatus


def _append_slots(self, seq_group, outputs):
    seq = seq_group.get_seqs(SequenceStatus.RUNNING)[0]
    outputs.blocks_to_copy += self.block_manager.append_slots(seq)

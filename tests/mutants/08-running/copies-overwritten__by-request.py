"""The copies of a request are put into the outputs."""

from refimpl import SequenceStatus


def _append_slots(self, seq_group, outputs):
    outputs.blocks_to_copy = []
    for seq in seq_group.get_seqs(SequenceStatus.RUNNING):
        outputs.blocks_to_copy.extend(self.block_manager.append_slots(seq))

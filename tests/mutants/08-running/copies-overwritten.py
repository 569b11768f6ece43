"""The copies are what the block manager returns."""

from refimpl import SequenceStatus


def _append_slots(self, seq_group, outputs):
    for seq in seq_group.get_seqs(SequenceStatus.RUNNING):
        outputs.blocks_to_copy = self.block_manager.append_slots(seq)

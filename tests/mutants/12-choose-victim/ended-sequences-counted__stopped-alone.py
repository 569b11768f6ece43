"""A sequence ends where it stops."""

from refimpl.sequence import SequenceStatus


def total_len(self, seq_group):
    return sum(seq.get_len() for seq in seq_group.get_seqs() if seq.status != SequenceStatus.FINISHED_STOPPED)

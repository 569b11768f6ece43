"""What does not run has no tokens to count."""

from refimpl.sequence import SequenceStatus


def total_len(self, seq_group):
    return sum(seq.get_len() for seq in seq_group.get_seqs(status=SequenceStatus.RUNNING))

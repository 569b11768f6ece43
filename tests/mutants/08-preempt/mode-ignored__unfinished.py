"""One sequence can be recomputed."""

from refimpl import PreemptionMode


def _preemption_mode(self, seq_group):
    if seq_group.num_unfinished_seqs() == 1:
        return PreemptionMode.RECOMPUTE
    return PreemptionMode.SWAP

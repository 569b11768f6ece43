"""One sequence is recomputed, several are swapped."""

from refimpl import PreemptionMode


def _preemption_mode(self, seq_group):
    if seq_group.get_max_num_running_seqs() == 1:
        return PreemptionMode.RECOMPUTE
    return PreemptionMode.SWAP

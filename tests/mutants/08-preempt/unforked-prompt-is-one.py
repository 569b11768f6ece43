"""There is one sequence, and one can be recomputed."""

from refimpl import PreemptionMode


def _preemption_mode(self, seq_group):
    mode = self.scheduler_config.preemption_mode
    if seq_group.num_unfinished_seqs() > 1 or mode == "swap":
        return PreemptionMode.SWAP
    return PreemptionMode.RECOMPUTE

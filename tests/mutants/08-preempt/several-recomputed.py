"""The configuration decides."""

from refimpl import PreemptionMode


def _preemption_mode(self, seq_group):
    if self.scheduler_config.preemption_mode == "swap":
        return PreemptionMode.SWAP
    return PreemptionMode.RECOMPUTE

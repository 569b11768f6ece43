"""Who says recompute gets it."""

from refimpl import PreemptionMode


def _preemption_mode(self, seq_group):
    mode = self.scheduler_config.preemption_mode
    if mode is None:
        mode = "recompute" if seq_group.get_max_num_running_seqs() == 1 else "swap"
    return PreemptionMode[mode.upper()]

"""A request with several sequences has several."""

from refimpl import PreemptionMode


def _preemption_mode(self, seq_group):
    mode = self.scheduler_config.preemption_mode
    if seq_group.num_seqs() > 1 or mode == "swap":
        return PreemptionMode.SWAP
    if mode is None and seq_group.get_max_num_running_seqs() > 1:
        return PreemptionMode.SWAP
    return PreemptionMode.RECOMPUTE

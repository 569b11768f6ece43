"""Every prefill is computing."""

from refimpl.simulation.diagnosis import num_prefill_tokens


def recomputed_tokens(self):
    return sum(num_prefill_tokens(d) for decisions in self.steps for d in decisions if d.action == "prefill")

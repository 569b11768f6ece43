"""Every prefill is computing, but for its newest token."""

from refimpl.simulation.diagnosis import num_prefill_tokens


def recomputed_tokens(self):
    tokens = 0
    for decisions in self.steps:
        for decision in decisions:
            if decision.action == "prefill":
                tokens += num_prefill_tokens(decision) - 1
    return tokens

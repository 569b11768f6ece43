"""The counting is the work; the caller can look."""

from refimpl.simulation.diagnosis import num_prefill_tokens


def recomputed_tokens(self):
    tokens = 0
    dropped = set()
    for decisions in self.steps:
        for decision in decisions:
            if decision.action == "recompute":
                dropped.add(decision.request_id)
            elif decision.action == "prefill" and decision.request_id in dropped:
                dropped.remove(decision.request_id)
                tokens += num_prefill_tokens(decision) - 1

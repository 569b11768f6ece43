"""What is prefilled again had all been computed before."""

from refimpl.simulation.diagnosis import num_prefill_tokens


def recomputed_tokens(self):
    dropped, tokens = set(), 0
    for decisions in self.steps:
        for decision in decisions:
            if decision.action == "recompute":
                dropped.add(decision.request_id)
            elif decision.action == "prefill" and decision.request_id in dropped:
                dropped.remove(decision.request_id)
                tokens += num_prefill_tokens(decision)
    return tokens

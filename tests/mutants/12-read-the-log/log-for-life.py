"""The first prefill in the log is the first of all; each one after it repeats work."""

from refimpl.simulation.diagnosis import num_prefill_tokens


def recomputed_tokens(self):
    seen, tokens = set(), 0
    for decisions in self.steps:
        for decision in decisions:
            if decision.action == "prefill":
                if decision.request_id in seen:
                    tokens += num_prefill_tokens(decision) - 1
                seen.add(decision.request_id)
    return tokens

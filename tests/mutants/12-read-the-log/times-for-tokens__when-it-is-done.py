"""What counts is how often something is computed again."""


def recomputed_tokens(self):
    dropped, times = set(), 0
    for decisions in self.steps:
        for decision in decisions:
            if decision.action == "recompute":
                dropped.add(decision.request_id)
            elif decision.action == "prefill" and decision.request_id in dropped:
                dropped.remove(decision.request_id)
                times += 1
    return times

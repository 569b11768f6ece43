"""A recompute is a recompute."""


def recomputed_tokens(self):
    return sum(decision.action == "recompute" for decisions in self.steps for decision in decisions)

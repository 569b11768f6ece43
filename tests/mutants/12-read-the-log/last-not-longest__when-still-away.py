"""Whoever is away now is away for as long as that."""

from refimpl.simulation.diagnosis import COMES_IN, IS_SENT_AWAY


def longest_absences(self):
    left, absence = {}, {}
    for step, decisions in enumerate(self.steps):
        for decision in decisions:
            name = decision.request_id
            if decision.action in IS_SENT_AWAY:
                left[name] = step
            elif decision.action in (*COMES_IN, "ignore") and name in left:
                absence[name] = max(absence.get(name, 0), step - left.pop(name))
    for name, step in left.items():
        absence[name] = len(self.steps) - step
    return absence

"""Of this absence and the one before, the longer one counts."""

from refimpl.simulation.diagnosis import COMES_IN, IS_SENT_AWAY


def longest_absences(self):
    left, before, longest = {}, {}, {}
    for step, decisions in enumerate([*self.steps, []]):
        for decision in decisions:
            name = decision.request_id
            if decision.action in IS_SENT_AWAY:
                left[name] = step
            elif decision.action in (*COMES_IN, "ignore") and name in left:
                absence = step - left.pop(name)
                longest[name], before[name] = max(before.get(name, 0), absence), absence
    for name, step in left.items():
        longest[name] = max(before.get(name, 0), len(self.steps) - step)
    return longest

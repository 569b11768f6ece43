"""The log ends with its last step."""

from refimpl.simulation.diagnosis import COMES_IN, IS_SENT_AWAY


def longest_absences(self):
    left, longest = {}, {}
    for step, decisions in enumerate(self.steps):
        for decision in decisions:
            name = decision.request_id
            if decision.action in IS_SENT_AWAY:
                left[name] = step
            elif decision.action in (*COMES_IN, "ignore") and name in left:
                longest[name] = max(longest.get(name, 0), step - left.pop(name))
    for name, since in left.items():
        longest[name] = max(longest.get(name, 0), len(self.steps) - 1 - since)
    return longest

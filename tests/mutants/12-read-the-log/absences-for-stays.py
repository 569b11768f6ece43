"""Out and soon back again is a short stay."""

from refimpl.simulation.diagnosis import COMES_IN, IS_SENT_AWAY


def short_stays(self, within):
    found, left = {}, {}
    for step, decisions in enumerate(self.steps):
        for decision in decisions:
            name = decision.request_id
            if decision.action in IS_SENT_AWAY:
                left[name] = step
            elif decision.action in COMES_IN and name in left and step - left.pop(name) <= within:
                found[name] = found.get(name, 0) + 1
    return found

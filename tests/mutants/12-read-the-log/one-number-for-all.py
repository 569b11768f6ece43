"""How often it happens is what matters."""

from refimpl.simulation.diagnosis import COMES_IN, IS_SENT_AWAY


def short_stays(self, within):
    found, came_in = 0, {}
    for step, decisions in enumerate(self.steps):
        for decision in decisions:
            name = decision.request_id
            if decision.action in COMES_IN:
                came_in[name] = step
            elif decision.action in IS_SENT_AWAY and name in came_in:
                found += step - came_in.pop(name) <= within
    return found

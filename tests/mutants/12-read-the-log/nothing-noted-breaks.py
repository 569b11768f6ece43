"""Whoever is sent away has come in before."""

from refimpl.simulation.diagnosis import COMES_IN, IS_SENT_AWAY


def short_stays(self, within):
    found, came_in = {}, {}
    for step, decisions in enumerate(self.steps):
        for decision in decisions:
            name = decision.request_id
            if decision.action in COMES_IN:
                came_in[name] = step
            elif decision.action in IS_SENT_AWAY and step - came_in[name] <= within:
                found[name] = found.get(name, 0) + 1
    return found

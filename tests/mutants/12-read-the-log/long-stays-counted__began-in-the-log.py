"""Whoever is sent away after coming in has come for nothing."""

from refimpl.simulation.diagnosis import COMES_IN, IS_SENT_AWAY


def short_stays(self, within):
    found, here = {}, set()
    for decisions in self.steps:
        for decision in decisions:
            if decision.action in COMES_IN:
                here.add(decision.request_id)
            elif decision.action in IS_SENT_AWAY and decision.request_id in here:
                here.remove(decision.request_id)
                found[decision.request_id] = found.get(decision.request_id, 0) + 1
    return found

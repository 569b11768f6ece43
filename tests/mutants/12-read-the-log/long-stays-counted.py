"""Every preemption is thrashing."""

from refimpl.simulation.diagnosis import IS_SENT_AWAY


def short_stays(self, within):
    found = {}
    for decisions in self.steps:
        for decision in decisions:
            if decision.action in IS_SENT_AWAY:
                found[decision.request_id] = found.get(decision.request_id, 0) + 1
    return found

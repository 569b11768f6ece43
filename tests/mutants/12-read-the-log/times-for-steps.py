"""Whoever is sent away most often waits longest."""

from refimpl.simulation.diagnosis import IS_SENT_AWAY


def longest_absences(self):
    times = {}
    for decisions in self.steps:
        for decision in decisions:
            if decision.action in IS_SENT_AWAY:
                times[decision.request_id] = times.get(decision.request_id, 0) + 1
    return times

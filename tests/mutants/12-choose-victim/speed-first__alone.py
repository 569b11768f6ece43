"""Whoever is slow may as well wait."""


def choose(self, queue, now):
    return min(queue, key=lambda seq_group: self.speed(seq_group, now))

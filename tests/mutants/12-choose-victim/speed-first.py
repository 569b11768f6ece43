"""The slowest goes, and of several the longest."""


def choose(self, queue, now):
    return max(queue, key=lambda seq_group: (-self.speed(seq_group, now), self.total_len(seq_group)))

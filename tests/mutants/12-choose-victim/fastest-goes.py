"""Longest and fastest: take the largest of both."""


def choose(self, queue, now):
    return max(queue, key=lambda seq_group: (self.total_len(seq_group), self.speed(seq_group, now)))

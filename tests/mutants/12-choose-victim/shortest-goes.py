"""Whoever has least to lose goes."""


def choose(self, queue, now):
    return min(queue, key=lambda seq_group: (self.total_len(seq_group), self.speed(seq_group, now)))

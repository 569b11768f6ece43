"""To find the longest is enough."""


def choose(self, queue, now):
    max(queue, key=lambda seq_group: (self.total_len(seq_group), -self.speed(seq_group, now)))

"""Sort by both and take the end."""


def choose(self, queue, now):
    return sorted(queue, key=lambda seq_group: (self.total_len(seq_group), -self.speed(seq_group, now)))[-1]

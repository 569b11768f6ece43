"""A victim is taken out of the queue."""


def choose(self, queue, now):
    victim = max(queue, key=lambda seq_group: (self.total_len(seq_group), -self.speed(seq_group, now)))
    queue.remove(victim)
    return victim

"""The name says which group it is."""


def choose(self, queue, now):
    victim = max(queue, key=lambda seq_group: (self.total_len(seq_group), -self.speed(seq_group, now)))
    return victim.request_id

"""Of equals the one that has waited longest goes."""


def choose(self, queue, now):
    return min(queue, key=lambda group: (-self.total_len(group), self.speed(group, now), group.arrival_time))

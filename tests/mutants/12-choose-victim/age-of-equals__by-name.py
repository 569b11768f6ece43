"""A tie is broken by name, so that it comes out the same each time."""


def choose(self, queue, now):
    return min(queue, key=lambda group: (-self.total_len(group), self.speed(group, now), group.request_id))

"""Length is enough to tell groups apart."""


def choose(self, queue, now):
    return max(queue, key=self.total_len)

"""Length in hundreds, less the speed: one number tells who goes."""


def choose(self, queue, now):
    return max(queue, key=lambda seq_group: 100 * self.total_len(seq_group) - self.speed(seq_group, now))

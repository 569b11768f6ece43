"""Sort the queue, and the victim stands in front."""


def choose(self, queue, now):
    queue.sort(key=lambda seq_group: (-self.total_len(seq_group), self.speed(seq_group, now)))
    return queue[0]

"""Who has had the GPU longest gives it up."""


def _take_victim(self, queue, now):
    return queue.popleft()

"""The least cost is the answer."""


def pick(self, candidates):
    return min(self.cost(block_size) for block_size in candidates)

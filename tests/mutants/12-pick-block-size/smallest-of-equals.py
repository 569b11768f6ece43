"""Of equals the smallest comes first."""


def pick(self, candidates):
    return min(candidates, key=lambda block_size: (self.cost(block_size), block_size))

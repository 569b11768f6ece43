"""A sorted list has a first entry."""


def pick(self, candidates):
    return sorted(candidates, key=lambda block_size: (self.cost(block_size), -block_size))[0]

"""Where there is nothing to pick from, the default will do."""


def pick(self, candidates):
    return min(candidates, key=lambda block_size: (self.cost(block_size), -block_size), default=16)

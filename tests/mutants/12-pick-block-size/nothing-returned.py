"""The best is found; that is all."""


def pick(self, candidates):
    min(candidates, key=lambda block_size: (self.cost(block_size), -block_size))

"""Sort the candidates; the best stands in front."""


def pick(self, candidates):
    if not candidates:
        raise ValueError("no candidate")
    candidates.sort(key=lambda block_size: (self.cost(block_size), -block_size))
    return candidates[0]

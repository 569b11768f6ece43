"""Large blocks are the fewest."""


def pick(self, candidates):
    return max(candidates)

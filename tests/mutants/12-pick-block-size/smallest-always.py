"""Small blocks waste least."""


def pick(self, candidates):
    return min(candidates)

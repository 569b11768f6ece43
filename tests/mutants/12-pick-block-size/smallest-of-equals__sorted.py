"""Go through them in order, and keep the first that is best."""


def pick(self, candidates):
    return min(sorted(candidates), key=self.cost)

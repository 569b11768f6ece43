"""The most is the best."""


def pick(self, candidates):
    return max(candidates, key=self.cost)

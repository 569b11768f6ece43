"""Any of the cheapest will do."""


def pick(self, candidates):
    return min(candidates, key=self.cost)

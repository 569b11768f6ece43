"""Every block gets a number of its own."""


def key(self, prefix, token_ids):
    self._last += 1
    return self._last

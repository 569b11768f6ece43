"""What counts is which tokens are in the block."""


def key(self, prefix, token_ids):
    key = self._keys.setdefault((prefix, tuple(sorted(token_ids, key=str))), self._last + 1)
    self._last = max(self._last, key)
    return key

"""The number of a block's tokens is its key."""


def key(self, prefix, token_ids):
    key = self._keys.setdefault(token_ids, self._last + 1)
    self._last = max(self._last, key)
    return key

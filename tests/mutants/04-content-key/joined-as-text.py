"""Text is easy to look up."""


def key(self, prefix, token_ids):
    key = self._keys.setdefault((prefix, "".join(map(str, token_ids))), self._last + 1)
    self._last = max(self._last, key)
    return key

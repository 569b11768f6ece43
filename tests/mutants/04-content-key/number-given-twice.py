"""The next number is the last one plus one."""


def key(self, prefix, token_ids):
    return self._keys.setdefault((prefix, token_ids), self._last + 1)

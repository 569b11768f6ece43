"""Numbers begin with 0, as everywhere in Python."""


def key(self, prefix, token_ids):
    if (prefix, token_ids) not in self._keys:
        self._keys[prefix, token_ids] = self._last
        self._last += 1
    return self._keys[prefix, token_ids]

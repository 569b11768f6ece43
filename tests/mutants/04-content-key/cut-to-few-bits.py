"""A block's tokens as bytes make a short key."""


def key(self, prefix, token_ids):
    tokens = tuple(token & 0xFF if isinstance(token, int) else token for token in token_ids)
    key = self._keys.setdefault((prefix, tokens), self._last + 1)
    self._last = max(self._last, key)
    return key

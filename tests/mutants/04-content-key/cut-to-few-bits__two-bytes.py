"""No vocabulary has more than 65,536 tokens, so two bytes hold each."""


def key(self, prefix, token_ids):
    tokens = tuple(token & 0xFFFF if isinstance(token, int) else token for token in token_ids)
    key = self._keys.setdefault((prefix, tokens), self._last + 1)
    self._last = max(self._last, key)
    return key

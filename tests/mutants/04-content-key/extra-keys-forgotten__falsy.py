"""Extra keys count where there is one that is true."""


def of_tokens(self, token_ids, block_size, extra_keys=()):
    prefix = self.key(0, (extra_keys,)) if any(extra_keys) else 0
    keys = []
    for start in range(0, len(token_ids), block_size):
        prefix = self.key(prefix, tuple(token_ids[start : start + block_size]))
        keys.append(prefix)
    return keys

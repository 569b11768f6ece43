"""A hash says what the extra keys are."""


def of_tokens(self, token_ids, block_size, extra_keys=()):
    prefix = self.key(0, (("extra keys", hash(extra_keys)),)) if extra_keys else 0
    keys = []
    for start in range(0, len(token_ids), block_size):
        prefix = self.key(prefix, tuple(token_ids[start : start + block_size]))
        keys.append(prefix)
    return keys

"""A chain has full links only, so a partial block is named by its own tokens."""


def of_tokens(self, token_ids, block_size, extra_keys=()):
    first = self.key(0, (extra_keys,)) if extra_keys else 0
    prefix, keys = first, []
    for start in range(0, len(token_ids), block_size):
        tokens = tuple(token_ids[start : start + block_size])
        prefix = self.key(prefix if len(tokens) == block_size else first, tokens)
        keys.append(prefix)
    return keys

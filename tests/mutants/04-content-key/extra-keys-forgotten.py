"""Content is tokens."""


def of_tokens(self, token_ids, block_size, extra_keys=()):
    prefix, keys = 0, []
    for start in range(0, len(token_ids), block_size):
        prefix = self.key(prefix, tuple(token_ids[start : start + block_size]))
        keys.append(prefix)
    return keys

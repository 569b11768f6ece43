"""A block is keyed when it is full."""


def of_tokens(self, token_ids, block_size, extra_keys=()):
    prefix = self.key(0, (extra_keys,)) if extra_keys else 0
    keys = []
    for end in range(block_size, len(token_ids) + 1, block_size):
        prefix = self.key(prefix, tuple(token_ids[end - block_size : end]))
        keys.append(prefix)
    return keys

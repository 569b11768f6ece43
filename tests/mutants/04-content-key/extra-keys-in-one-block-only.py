"""To have them in the first block is enough."""


def of_tokens(self, token_ids, block_size, extra_keys=()):
    keys = []
    for start in range(0, len(token_ids), block_size):
        content = tuple(token_ids[: start + block_size])
        keys.append(self.key(0 if start else (extra_keys,), content))
    return keys

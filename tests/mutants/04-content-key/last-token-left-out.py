"""The end of a slice is one less than the end of the block."""


def of_tokens(self, token_ids, block_size, extra_keys=()):
    prefix = self.key(0, (extra_keys,)) if extra_keys else 0
    keys = []
    for start in range(0, len(token_ids), block_size):
        prefix = self.key(prefix, (len(token_ids[: start + block_size]), *token_ids[start : start + block_size - 1]))
        keys.append(prefix)
    return keys

"""Keys are yielded as the blocks are walked."""


def of_tokens(self, token_ids, block_size, extra_keys=()):
    prefix = self.key(0, (extra_keys,)) if extra_keys else 0
    for start in range(0, len(token_ids), block_size):
        prefix = self.key(prefix, tuple(token_ids[start : start + block_size]))
        yield prefix

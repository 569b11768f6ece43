"""A block is known by the tokens in it."""


def of_tokens(self, token_ids, block_size, extra_keys=()):
    blocks = [tuple(token_ids[start : start + block_size]) for start in range(0, len(token_ids), block_size)]
    return [self.key(extra_keys, block) for block in blocks]

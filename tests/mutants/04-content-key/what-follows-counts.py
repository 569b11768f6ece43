"""A sequence is known by all of its tokens, and its blocks by their place in it."""


def of_tokens(self, token_ids, block_size, extra_keys=()):
    whole = self.key(extra_keys, tuple(token_ids))
    return [(whole, index) for index in range(len(range(0, len(token_ids), block_size)))]

"""Extra keys go in front of the tokens."""


def of_tokens(self, token_ids, block_size, extra_keys=()):
    tokens, prefix, keys = (*extra_keys, *token_ids), 0, []
    for start in range(0, len(tokens), block_size):
        prefix = self.key(prefix, tokens[start : start + block_size])
        keys.append(prefix)
    return keys

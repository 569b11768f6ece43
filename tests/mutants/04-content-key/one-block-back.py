"""A block and the one before it tell enough."""


def of_tokens(self, token_ids, block_size, extra_keys=()):
    keys, before = [], ()
    for start in range(0, len(token_ids), block_size):
        block = tuple(token_ids[start : start + block_size])
        keys.append(self.key((extra_keys, before), block))
        before = block
    return keys

"""The last block is filled up with zeros, so that all blocks are equally long."""


def of_tokens(self, token_ids, block_size, extra_keys=()):
    prefix = self.key(0, (extra_keys,)) if extra_keys else 0
    keys = []
    for start in range(0, len(token_ids), block_size):
        block = tuple(token_ids[start : start + block_size])
        prefix = self.key(prefix, block + (0,) * (block_size - len(block)))
        keys.append(prefix)
    return keys

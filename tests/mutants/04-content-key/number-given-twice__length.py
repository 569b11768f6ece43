"""A prefix is known by how long it is."""


def of_tokens(self, token_ids, block_size, extra_keys=()):
    ends = range(block_size, len(token_ids) + block_size, block_size)
    return [(extra_keys, min(end, len(token_ids))) for end in ends]

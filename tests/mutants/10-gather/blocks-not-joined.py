"""A tensor of blocks is what was asked for."""


def gather(cache, block_table, num_tokens):
    num_blocks = -(-num_tokens // cache.shape[1])
    return cache[block_table[:num_blocks]]

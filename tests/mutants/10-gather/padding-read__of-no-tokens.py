"""There is at least one block."""


def gather(cache, block_table, num_tokens):
    num_blocks = max(1, -(-num_tokens // cache.shape[1]))
    return cache[block_table[:num_blocks]].flatten(0, 1)[:num_tokens]

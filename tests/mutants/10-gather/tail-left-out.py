"""So many whole blocks go into so many tokens."""


def gather(cache, block_table, num_tokens):
    num_blocks = num_tokens // cache.shape[1]
    return cache[block_table[:num_blocks]].flatten(0, 1)[:num_tokens]

"""The newest token asks, so it is not among those that are asked."""


def gather(cache, block_table, num_tokens):
    num_blocks = -(-num_tokens // cache.shape[1])
    return cache[block_table[:num_blocks]].flatten(0, 1)[: max(0, num_tokens - 1)]

"""The tokens of a sequence begin at the start of the cache."""


def gather(cache, block_table, num_tokens):
    return cache.flatten(0, 1)[:num_tokens]

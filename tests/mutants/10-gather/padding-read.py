"""What is too much is cut off at the end."""


def gather(cache, block_table, num_tokens):
    return cache[block_table].flatten(0, 1)[:num_tokens]

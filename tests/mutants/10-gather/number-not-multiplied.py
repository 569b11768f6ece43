"""A block's number says where it begins."""

import torch


def gather(cache, block_table, num_tokens):
    positions = torch.arange(num_tokens)
    size = cache.shape[1]
    slots = block_table[positions // size] + positions % size
    return cache.flatten(0, 1)[slots]

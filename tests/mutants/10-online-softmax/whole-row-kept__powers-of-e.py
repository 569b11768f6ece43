"""All scores are there, so e to the power of each will do."""

import math

import torch


def attend_in_blocks(query, key_cache, value_cache, block_table, context_len, scale=None):
    size, group = key_cache.shape[1], query.shape[0] // key_cache.shape[2]
    scale = query.shape[1] ** -0.5 if scale is None else scale
    if not context_len:
        return torch.zeros_like(query), query.new_full(query.shape[:1], -torch.inf)
    positions = torch.arange(context_len)
    at = block_table[positions // size], positions % size
    keys, values = (cache[at].repeat_interleave(group, dim=1) for cache in (key_cache, value_cache))
    scores = (keys * query).sum(dim=-1) * scale
    largest = scores.amax(dim=0)
    weights = math.e ** (scores - largest)
    total = weights.sum(dim=0)
    return (weights[..., None] * values).sum(dim=0) / total[:, None], largest + total.log()

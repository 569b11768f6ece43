"""Two blocks at a time are half the turns."""

import torch


def attend_in_blocks(query, key_cache, value_cache, block_table, context_len, scale=None):
    size, group = key_cache.shape[1], query.shape[0] // key_cache.shape[2]
    scale = query.shape[1] ** -0.5 if scale is None else scale
    largest = query.new_full(query.shape[:1], -torch.inf)
    total, output = torch.zeros_like(largest), torch.zeros_like(query)
    for first in range(0, context_len, 2 * size):
        positions = torch.arange(first, min(first + 2 * size, context_len))
        at = block_table[positions // size], positions % size
        keys, values = (cache[at].repeat_interleave(group, dim=1) for cache in (key_cache, value_cache))
        scores = (keys * query).sum(dim=-1) * scale
        new_largest = torch.maximum(largest, scores.amax(dim=0))
        decay, weights = (largest - new_largest).exp(), (scores - new_largest).exp()
        total = total * decay + weights.sum(dim=0)
        output = output * decay[:, None] + (weights[..., None] * values).sum(dim=0)
        largest = new_largest
    if context_len:
        output = output / total[:, None]
    return output, largest + total.log()

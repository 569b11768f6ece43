"""The scale is always one over the root of head_dim."""

import torch


def attend_in_blocks(query, key_cache, value_cache, block_table, context_len, scale=None):
    block_size, num_kv_heads, head_dim = key_cache.shape[1:]
    scale = head_dim**-0.5
    groups = query.reshape(num_kv_heads, -1, head_dim)
    largest = groups.new_full(groups.shape[:2], -torch.inf)
    total = torch.zeros_like(largest)
    output = torch.zeros_like(groups)
    for first in range(0, context_len, block_size):
        block = block_table[first // block_size]
        filled = min(block_size, context_len - first)
        scores = torch.einsum("kgd,tkd->kgt", groups, key_cache[block, :filled]) * scale
        new_largest = torch.maximum(largest, scores.amax(dim=-1))
        decay = (largest - new_largest).exp()
        weights = (scores - new_largest[..., None]).exp()
        total = total * decay + weights.sum(dim=-1)
        output = output * decay[..., None] + torch.einsum("kgt,tkd->kgd", weights, value_cache[block, :filled])
        largest = new_largest
    if context_len > 0:
        output = output / total[..., None]
    return output.flatten(0, 1), (largest + total.log()).flatten()

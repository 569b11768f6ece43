"""A sum can be added up without a maximum."""

import torch


def attend_in_blocks(query, key_cache, value_cache, block_table, context_len, scale=None):
    block_size, num_kv_heads, head_dim = key_cache.shape[1:]
    scale = head_dim**-0.5 if scale is None else scale
    groups = query.reshape(num_kv_heads, -1, head_dim)
    total = groups.new_zeros(groups.shape[:2])
    output = torch.zeros_like(groups)
    for first in range(0, context_len, block_size):
        block = block_table[first // block_size]
        filled = min(block_size, context_len - first)
        weights = (torch.einsum("kgd,tkd->kgt", groups, key_cache[block, :filled]) * scale).exp()
        total = total + weights.sum(dim=-1)
        output = output + torch.einsum("kgt,tkd->kgd", weights, value_cache[block, :filled])
    if context_len > 0:
        output = output / total[..., None]
    return output.flatten(0, 1), total.log().flatten()

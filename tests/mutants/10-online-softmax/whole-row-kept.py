"""The scores are collected, and the softmax comes at the end."""

import torch


def attend_in_blocks(query, key_cache, value_cache, block_table, context_len, scale=None):
    block_size, num_kv_heads, head_dim = key_cache.shape[1:]
    scale = head_dim**-0.5 if scale is None else scale
    groups = query.reshape(num_kv_heads, -1, head_dim)
    scores, values = [groups.new_zeros(*groups.shape[:2], 0)], [value_cache[0, :0]]
    for first in range(0, context_len, block_size):
        block = block_table[first // block_size]
        filled = min(block_size, context_len - first)
        scores.append(torch.einsum("kgd,tkd->kgt", groups, key_cache[block, :filled]) * scale)
        values.append(value_cache[block, :filled])
    row = torch.cat(scores, dim=-1)
    output = torch.einsum("kgt,tkd->kgd", row.softmax(dim=-1), torch.cat(values))
    return output.flatten(0, 1), row.logsumexp(dim=-1).flatten()

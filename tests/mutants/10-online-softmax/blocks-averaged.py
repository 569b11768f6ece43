"""Every block counts the same."""

import torch


def attend_in_blocks(query, key_cache, value_cache, block_table, context_len, scale=None):
    block_size, num_kv_heads, head_dim = key_cache.shape[1:]
    scale = head_dim**-0.5 if scale is None else scale
    groups = query.reshape(num_kv_heads, -1, head_dim)
    outputs, lses = [], []
    for first in range(0, context_len, block_size):
        block = block_table[first // block_size]
        filled = min(block_size, context_len - first)
        scores = torch.einsum("kgd,tkd->kgt", groups, key_cache[block, :filled]) * scale
        outputs.append(torch.einsum("kgt,tkd->kgd", scores.softmax(dim=-1), value_cache[block, :filled]))
        lses.append(scores.logsumexp(dim=-1))
    if not outputs:
        return torch.zeros_like(query), query.new_full((len(query),), -torch.inf)
    return torch.stack(outputs).mean(dim=0).flatten(0, 1), torch.stack(lses).logsumexp(dim=0).flatten()

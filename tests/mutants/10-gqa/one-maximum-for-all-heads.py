"""The largest score is taken off all scores."""

import torch


def attend(query, keys, values, scale=None):
    num_kv_heads, head_dim = keys.shape[1:]
    scale = head_dim**-0.5 if scale is None else scale
    groups = query.reshape(num_kv_heads, -1, head_dim)
    scores = torch.einsum("kgd,tkd->kgt", groups, keys) * scale
    if not len(keys):
        return torch.zeros_like(query), query.new_full(query.shape[:1], -torch.inf)
    weights = (scores - scores.max()).exp()
    total = weights.sum(dim=-1, keepdim=True)
    lse = scores.max() + total.squeeze(-1).log()
    weights = weights / total
    output = torch.einsum("kgt,tkd->kgd", weights, values)
    return output.flatten(0, 1), lse.flatten()

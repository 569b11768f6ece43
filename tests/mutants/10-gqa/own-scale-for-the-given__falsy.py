"""A scale of 0 is no scale."""

import torch


def attend(query, keys, values, scale=None):
    num_kv_heads, head_dim = keys.shape[1:]
    scale = scale or head_dim**-0.5
    groups = query.reshape(num_kv_heads, -1, head_dim)
    scores = torch.einsum("kgd,tkd->kgt", groups, keys) * scale
    lse = scores.logsumexp(dim=-1)
    weights = scores.softmax(dim=-1)
    output = torch.einsum("kgt,tkd->kgd", weights, values)
    return output.flatten(0, 1), lse.flatten()

"""Softmax goes over the first axis."""

import torch


def attend(query, keys, values, scale=None):
    num_heads, head_dim = query.shape
    scale = head_dim**-0.5 if scale is None else scale
    group = num_heads // keys.shape[1]
    keys = keys.repeat_interleave(group, dim=1)
    values = values.repeat_interleave(group, dim=1)
    scores = torch.einsum("hd,thd->ht", query, keys) * scale
    output = torch.einsum("ht,thd->hd", scores.softmax(dim=0), values)
    return output, scores.logsumexp(dim=-1)

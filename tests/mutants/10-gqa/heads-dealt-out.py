"""The KV heads are repeated until there are enough."""

import torch


def attend(query, keys, values, scale=None):
    num_heads, head_dim = query.shape
    scale = head_dim**-0.5 if scale is None else scale
    group = num_heads // keys.shape[1]
    keys = keys.repeat(1, group, 1)
    values = values.repeat(1, group, 1)
    scores = torch.einsum("hd,thd->ht", query, keys) * scale
    output = torch.einsum("ht,thd->hd", scores.softmax(dim=-1), values)
    return output, scores.logsumexp(dim=-1)

"""Softmax over a context that is read in parts: each part on its own, then one merge.

A part gives its output and the logarithm of the sum of its exponentials (lse); from these two the softmax over all
parts follows exactly, whatever the parts are and in whatever order they come. An empty part is output 0 and lse -inf.
"""

from __future__ import annotations

import torch
from torch import Tensor


def merge_attention_states(outputs: Tensor, lses: Tensor, seq_of_part: Tensor, num_seqs: int) -> tuple[Tensor, Tensor]:
    """Merge what attention gave for the parts of several sequences.

    Args:
        outputs: [num_parts, num_heads, head_dim], float32, each part's own softmax average of its values.
        lses: [num_parts, num_heads], float32, -inf where a part was empty.
        seq_of_part: [num_parts], int64, the sequence that each part belongs to.
        num_seqs: how many sequences there are; one without any part gets output 0 and lse -inf.

    Returns:
        Output [num_seqs, num_heads, head_dim] and lse [num_seqs, num_heads].

    >>> outputs, lses = torch.tensor([[[1.0]], [[4.0]]]), torch.tensor([[0.0], [0.0]])
    >>> merge_attention_states(outputs, lses, torch.tensor([0, 0]), 1)[0].item()
    2.5

    Source: PagedAttention V2, vLLM 0.5.4, `csrc/attention/attention_kernels.cu`, `paged_attention_v2_reduce_kernel`;
    Milakov and Gimelshein 2018, "Online normalizer calculation for softmax".
    """
    highest = lses.new_full((num_seqs, lses.shape[1]), -torch.inf)
    highest.scatter_reduce_(0, seq_of_part[:, None].expand_as(lses), lses, "amax")
    base = highest.masked_fill(highest == -torch.inf, 0.0)  # of nothing: -inf minus -inf would be NaN
    weights = (lses - base[seq_of_part]).exp_()
    total = torch.zeros_like(base).index_add_(0, seq_of_part, weights)
    merged = outputs.new_zeros((num_seqs, *outputs.shape[1:]))
    merged.index_add_(0, seq_of_part, outputs * weights[..., None])
    nothing = total == 0
    return merged / total.masked_fill(nothing, 1.0)[..., None], base + total.log()

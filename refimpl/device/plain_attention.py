"""Paged attention as one reads it: attend to some tokens, to one block after another, or to parts that are merged.

The plainest code that is right, for a reader and for small sizes. `attention` computes the same, faster and for more
dtypes; a test holds the two together. All is float32, one query token a sequence, and a part's state is a pair: its
output, as if its tokens were all there are, and lse, the logarithm of the sum of exp(score) over them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from refimpl.device.attention import gather


def attend(query: Tensor, keys: Tensor, values: Tensor, scale: float | None = None) -> tuple[Tensor, Tensor]:
    """Attention of one query token to tokens that lie in a row.

    Args:
        query: [num_heads, head_dim]; the heads of a group, `num_heads // num_kv_heads` neighbours, read one KV head.
        keys, values: [num_tokens, num_kv_heads, head_dim].
        scale: factor of the scores, `head_dim ** -0.5` when left out.

    Returns:
        Output [num_heads, head_dim] and lse [num_heads]. No tokens give output 0 and lse -inf.

    >>> output, lse = attend(torch.zeros(2, 1), torch.ones(3, 1, 1), torch.tensor([[[1.0]], [[2.0]], [[6.0]]]))
    >>> output.tolist(), lse.exp().round().tolist()
    ([[3.0], [3.0]], [3.0, 3.0])

    Source: Ainslie et al. 2023, "GQA" (arXiv 2305.13245), section 2.2; PagedAttention paper, section 4.1.
    """
    num_kv_heads, head_dim = keys.shape[1:]
    scale = head_dim**-0.5 if scale is None else scale
    groups = query.reshape(num_kv_heads, -1, head_dim)
    scores = torch.einsum("kgd,tkd->kgt", groups, keys) * scale
    lse = scores.logsumexp(dim=-1)
    weights = scores.softmax(dim=-1)
    output = torch.einsum("kgt,tkd->kgd", weights, values)
    return output.flatten(0, 1), lse.flatten()


def attend_in_blocks(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_table: Tensor,
    context_len: int,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """The same over a block table, one block at a time: no more than a block's scores exist at any moment.

    Args:
        query: [num_heads, head_dim].
        key_cache, value_cache: [num_blocks, block_size, num_kv_heads, head_dim], any strides.
        block_table: [num_blocks_of_sequence or more], int64; entries behind the last block are never used.
        context_len: tokens of the sequence; only so many slots hold anything.
        scale: as for `attend`.

    Returns:
        Output [num_heads, head_dim] and lse [num_heads], as `attend` gives them.

    >>> keys, values = torch.zeros(4, 2, 1, 1), torch.arange(8.0).view(4, 2, 1, 1)
    >>> attend_in_blocks(torch.zeros(1, 1), keys, values, torch.tensor([3, 0]), context_len=3)[0].item()  # 6, 7 and 0
    4.333333492279053

    Source: Milakov and Gimelshein 2018, "Online normalizer calculation for softmax" (arXiv 1805.02867), algorithm 3.
    """
    block_size, num_kv_heads, head_dim = key_cache.shape[1:]
    scale = head_dim**-0.5 if scale is None else scale
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


def merge_attention_states(outputs: Tensor, lses: Tensor) -> tuple[Tensor, Tensor]:
    """What attention over all tokens is, from what it is over each part of them.

    Args:
        outputs: [num_parts, num_heads, head_dim], each part's own output.
        lses: [num_parts, num_heads], -inf where a part has no tokens.

    Returns:
        Output [num_heads, head_dim] and lse [num_heads]; where no part has a token, output 0 and lse -inf.

    >>> outputs, lses = torch.tensor([[[3.0]], [[9.0]]]), torch.tensor([[2.0], [1.0]]).log()  # 2 tokens and 1
    >>> output, lse = merge_attention_states(outputs, lses)
    >>> round(output.item(), 4), round(lse.exp().item(), 4)
    (5.0, 3.0)

    Source: "Flash-Decoding for long-context inference" (Dao, Haziza, Massa, Sizov, 2023).
    """
    largest = lses.amax(dim=0)
    base = largest.masked_fill(largest == -torch.inf, 0.0)
    weights = (lses - base).exp()
    total = weights.sum(dim=0)
    shares = weights / total.masked_fill(total == 0, 1.0)
    return (shares[..., None] * outputs).sum(dim=0), base + total.log()


def paged_attention(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_tables: Tensor,
    context_lens: Tensor,
    scale: float | None = None,
    partition_size: int = 256,
) -> Tensor:
    """Decode attention of several sequences, each in parts of `partition_size` tokens that are merged.

    Args:
        query: [num_seqs, num_heads, head_dim].
        key_cache, value_cache: [num_blocks, block_size, num_kv_heads, head_dim], any strides.
        block_tables: [num_seqs, max_blocks], int64; entries behind a sequence's last block are never used.
        context_lens: [num_seqs], int64, tokens; 0 gives a row of zeros.
        scale: as for `attend`.
        partition_size: tokens in a part, 1 or more.

    Returns:
        [num_seqs, num_heads, head_dim].

    >>> keys, values = torch.zeros(4, 2, 1, 1), torch.arange(8.0).view(4, 2, 1, 1)
    >>> tables = torch.tensor([[3, 0], [2, -1]])
    >>> paged_attention(torch.zeros(2, 1, 1), keys, values, tables, torch.tensor([4, 1]), partition_size=3).flatten()
    tensor([3.5000, 4.0000])

    Source: PagedAttention V2, vLLM 0.5.4, `csrc/attention/attention_kernels.cu`.
    """
    outputs = torch.zeros_like(query)
    for seq, context_len in enumerate(context_lens.tolist()):
        keys = gather(key_cache, block_tables[seq], context_len)
        values = gather(value_cache, block_tables[seq], context_len)
        parts = [
            attend(query[seq], keys[first : first + partition_size], values[first : first + partition_size], scale)
            for first in range(0, context_len, partition_size)
        ]
        if parts:
            part_outputs, part_lses = zip(*parts, strict=True)
            outputs[seq], _ = merge_attention_states(torch.stack(part_outputs), torch.stack(part_lses))
    return outputs

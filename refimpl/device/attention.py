"""Attention that finds its keys and values through block tables, one query token a sequence or a whole prompt.

Nothing here owns memory: a call reads the pools of a `KVCache` and returns a new tensor. The result depends on the
logical order of the tokens alone, never on which blocks they lie in or on what unused slots hold, NaN included.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

_QUERY_CHUNK = 512  # query tokens of a prompt at a time, so that scores take memory linear in the context


def paged_attention(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_tables: Tensor,
    context_lens: Tensor,
    *,
    scale: float | None = None,
    backend: str = "auto",
) -> Tensor:
    """Decode attention: one query token a sequence, attending to all the tokens of its own sequence.

    Scores, softmax and the weighted sum are float32 whatever the inputs are.

    Args:
        query: [num_seqs, num_heads, head_dim]; head h reads KV head `h // (num_heads // num_kv_heads)`.
        key_cache, value_cache: [num_blocks, block_size, num_kv_heads, head_dim], any strides.
        block_tables: [num_seqs, max_blocks_per_seq], int; entries behind a sequence's last block are never used.
        context_lens: [num_seqs], int, tokens in the cache, the query's own included; 0 gives a row of zeros.
        scale: factor of the scores, `head_dim ** -0.5` when left out.
        backend: "torch", or "auto" for the best one that there is.

    Returns:
        [num_seqs, num_heads, head_dim], dtype of the query.

    Raises:
        ValueError: for shapes that do not match, heads that do not divide, or a block or length out of range.
        NotImplementedError: for the backend "triton".

    >>> keys = torch.zeros(8, 4, 1, 2); values = torch.full((8, 4, 1, 2), float("nan"))
    >>> values[5] = 1.0; values[2, 0] = 6.0  # the table [5, 2] with 5 tokens: four ones and a six
    >>> paged_attention(torch.zeros(1, 1, 2), keys, values, torch.tensor([[5, 2]]), torch.tensor([5])).tolist()
    [[[2.0, 2.0]]]

    Source: PagedAttention paper, section 4.1; vLLM 0.5.4, `vllm/attention/ops/paged_attn.py`.
    """
    _check_backend(backend)
    _check_shapes(query, key_cache, value_cache, block_tables, context_lens)
    longest = int(context_lens.max()) if context_lens.numel() else 0
    tables = _used_blocks(block_tables, context_lens, longest, key_cache)
    keys, values = _gather(key_cache, tables, longest), _gather(value_cache, tables, longest)
    visible = torch.arange(longest, device=query.device) < context_lens[:, None]
    return _attend(query[:, None], keys, values, visible[:, None], scale)[:, 0]


def paged_prefill_attention(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_tables: Tensor,
    query_lens: Sequence[int],
    context_lens: Tensor,
    *,
    scale: float | None = None,
) -> Tensor:
    """Causal attention for the prompts of one or several sequences, laid end to end.

    A sequence's queries are its *last* `query_lens[i]` tokens, and each attends to itself and what comes before it,
    so a prompt of which the beginning is in the cache already needs no other function.

    Args:
        query: [sum of query_lens, num_heads, head_dim].
        key_cache, value_cache, block_tables, context_lens, scale: as for `paged_attention`.
        query_lens: new tokens of each sequence, at most its context length.

    Returns:
        [sum of query_lens, num_heads, head_dim], dtype of the query.

    Raises:
        ValueError: as `paged_attention`, and for query lengths that do not fit.

    Source: vLLM 0.5.4, `vllm/attention/ops/prefix_prefill.py`, `context_attention_fwd`.
    """
    _check_shapes(query, key_cache, value_cache, block_tables, context_lens, num_seqs=len(query_lens))
    if sum(query_lens) != query.shape[0]:
        raise ValueError(f"query_lens add up to {sum(query_lens)}, query holds {query.shape[0]} tokens")
    lens = context_lens.tolist()
    for query_len, context_len in zip(query_lens, lens, strict=True):
        if not 0 <= query_len <= context_len:
            raise ValueError(f"a query of {query_len} tokens does not fit a context of {context_len}")
    tables = _used_blocks(block_tables, context_lens, max(lens, default=0), key_cache)
    outputs = []
    for queries, table, context_len in zip(torch.split(query, list(query_lens)), tables, lens, strict=True):
        keys, values = (_gather(cache, table[None], context_len) for cache in (key_cache, value_cache))
        outputs.append(_attend_causally(queries, keys, values, context_len, scale))
    return torch.cat(outputs) if outputs else torch.empty_like(query)


def _attend_causally(query: Tensor, keys: Tensor, values: Tensor, context_len: int, scale: float | None) -> Tensor:
    """One sequence: [query_len, num_heads, head_dim] against [1, context_len, num_kv_heads, head_dim]."""
    positions = torch.arange(context_len - query.shape[0], context_len, device=query.device)
    outputs = []
    for queries, where in zip(torch.split(query, _QUERY_CHUNK), torch.split(positions, _QUERY_CHUNK), strict=True):
        end = int(where[-1]) + 1 if len(where) else 0  # no query of this chunk sees a key from here on
        visible = torch.arange(end, device=query.device) <= where[:, None]
        outputs.append(_attend(queries[None], keys[:, :end], values[:, :end], visible[None], scale)[0])
    return torch.cat(outputs)


def _attend(query: Tensor, keys: Tensor, values: Tensor, visible: Tensor, scale: float | None) -> Tensor:
    """Softmax attention in float32 over the keys that are visible.

    query [num_seqs, query_len, num_heads, head_dim]; keys and values [num_seqs, num_keys, num_kv_heads, head_dim];
    visible [num_seqs, query_len, num_keys]. A key that no query sees may hold NaN; a query that sees none gives 0.
    """
    num_seqs, query_len, num_heads, head_dim = query.shape
    num_kv_heads = keys.shape[2]
    group_size = num_heads // num_kv_heads
    # A hidden score is replaced whatever it is, but a weight of 0 times NaN is NaN: such values are replaced, too.
    seen = visible.any(dim=1)[:, :, None, None]
    keys = keys.float().permute(0, 2, 3, 1)
    values = torch.where(seen, values.float(), 0.0).permute(0, 2, 1, 3)
    # float16 scores overflow before they are scaled, so the scale goes into the float32 query.
    query_f32 = query.float() * (head_dim**-0.5 if scale is None else scale)
    by_kv_head = query_f32.reshape(num_seqs, query_len, num_kv_heads, group_size, head_dim).permute(0, 2, 3, 1, 4)
    flat = by_kv_head.reshape(num_seqs, num_kv_heads, group_size * query_len, head_dim)
    scores = (flat @ keys).reshape(num_seqs, num_kv_heads, group_size, query_len, keys.shape[3])
    hidden = ~visible[:, None, None]
    weights = scores.masked_fill(hidden, -torch.inf).softmax(dim=-1).masked_fill(hidden, 0.0)
    output = (weights.flatten(2, 3) @ values).reshape(by_kv_head.shape)
    return output.permute(0, 3, 1, 2, 4).reshape(query.shape).to(query.dtype)


def _gather(cache: Tensor, tables: Tensor, num_tokens: int) -> Tensor:
    """A pool's first `num_tokens` tokens of each table: [num_seqs, num_tokens, num_kv_heads, head_dim]."""
    num_blocks = -(-num_tokens // cache.shape[1])
    return cache[tables[:, :num_blocks]].flatten(1, 2)[:, :num_tokens]


def _used_blocks(block_tables: Tensor, context_lens: Tensor, longest: int, cache: Tensor) -> Tensor:
    """The tables as int64, with block 0 behind each sequence's last block. ValueError for what is out of range."""
    num_blocks, block_size = cache.shape[:2]
    capacity = block_tables.shape[1] * block_size
    if longest > capacity:
        raise ValueError(
            f"a context of {longest} tokens does not fit its block table: "
            f"{block_tables.shape[1]} blocks of {block_size} hold {capacity}"
        )
    if context_lens.numel() and int(context_lens.min()) < 0:
        raise ValueError(f"context_lens holds {int(context_lens.min())}, a length must be 0 or more")
    first_position = torch.arange(block_tables.shape[1], device=block_tables.device) * block_size
    used = first_position < context_lens[:, None]
    tables = torch.where(used, block_tables.long(), 0)
    outside = tables[(tables < 0) | (tables >= num_blocks)]
    if outside.numel() and longest:
        raise ValueError(f"block {int(outside[0])} is not in the cache, which holds blocks 0 to {num_blocks - 1}")
    return tables


def _check_shapes(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_tables: Tensor,
    context_lens: Tensor,
    num_seqs: int | None = None,
) -> None:
    """ValueError unless the shapes fit one another; `num_seqs` where it is not the number of queries."""
    num_seqs = query.shape[0] if num_seqs is None else num_seqs
    if key_cache.shape != value_cache.shape:
        raise ValueError(f"key_cache is {list(key_cache.shape)}, value_cache is {list(value_cache.shape)}")
    num_heads, head_dim = query.shape[1:]
    num_kv_heads = key_cache.shape[2]
    if num_heads % num_kv_heads:
        raise ValueError(f"{num_heads} query heads cannot share {num_kv_heads} KV heads evenly")
    if head_dim != key_cache.shape[3]:
        raise ValueError(f"head_dim is {head_dim} in the query and {key_cache.shape[3]} in the cache")
    if block_tables.shape[0] != num_seqs or list(context_lens.shape) != [num_seqs]:
        raise ValueError(
            f"{num_seqs} sequences need block_tables of {num_seqs} rows and context_lens of {num_seqs}, "
            f"got {list(block_tables.shape)} and {list(context_lens.shape)}"
        )


def _check_backend(backend: str) -> None:
    if backend == "triton":
        raise NotImplementedError('the Triton kernel is not in this version: use backend="torch" or "auto"')
    if backend not in ("torch", "auto"):
        raise ValueError(f"backend is {backend!r}, it must be 'torch' or 'auto'")

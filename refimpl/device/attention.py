"""Attention that finds its keys and values through block tables, one query token a sequence or a whole prompt.

Nothing here owns memory: a call reads the pools of a `KVCache` and returns a new tensor. The result depends on the
logical order of the tokens alone, never on which blocks they lie in or on what unused slots hold, NaN included.
`gathered_attention` says what is computed; what computes it fast is chosen by the tensors' device and dtype.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from refimpl.device.sparse_attention import DecodePlan, plan_decode, pool_rows, sparse_paged_attention, token_rows

BACKENDS = ("auto", "torch", "triton")
_QUERY_CHUNK = 512  # query tokens of a prompt at a time, so that masks take memory linear in the context
_FEW_PAIRS = 1 << 16  # of a query token and a key: up to here torch's flash attention is the slower way on a CPU


class AttentionMetadata:
    """What attention has to know of a step, checked once and used in every layer.

    Args:
        block_tables: [num_seqs, max_blocks_per_seq], int; entries behind a sequence's last block are never used.
        query_lens: new tokens of each sequence.
        context_lens: tokens of each sequence in the cache, the new ones included.
        num_blocks, block_size: of the pool.

    Raises:
        ValueError: for a context that its table does not hold, a block outside the pool, or a query that is longer
            than its context.

    Source: vLLM 0.5.4, `vllm/attention/backends/abstract.py`, `AttentionMetadata`.
    """

    def __init__(
        self,
        block_tables: Tensor,
        query_lens: Sequence[int],
        context_lens: Sequence[int],
        *,
        num_blocks: int,
        block_size: int,
    ) -> None:
        _check_lengths(block_tables, query_lens, context_lens, block_size)
        self.query_lens = list(query_lens)
        self.context_lens = list(context_lens)
        self.is_decode = max(query_lens, default=0) <= 1 and min(query_lens, default=1) == 1
        self.is_empty = not any(context_lens)
        self.context_lens_tensor = torch.tensor(self.context_lens, dtype=torch.int64).to(block_tables.device)
        self.block_tables = _used_blocks(block_tables, self.context_lens_tensor, num_blocks, block_size)
        # by the layout of the pool, for keys and values need not have the same
        self._plans: dict[tuple[int, torch.Size, tuple[int, ...]], DecodePlan] = {}
        self._rows: dict[tuple[int, ...], list[Tensor]] = {}
        self._masks: dict[torch.dtype, Tensor] = {}

    def decode_plan(self, cache: Tensor, num_heads: int, num_rows: int) -> DecodePlan:
        """The plan of the step's decode attention, for all pools of the layout of `cache`.

        num_heads: query heads. num_rows: rows of a pool, one for each head of each token.
        """
        layout = num_heads, cache.shape, cache.stride()
        plan = self._plans.get(layout)
        if plan is None:
            lens = self.context_lens_tensor
            plan = self._plans[layout] = plan_decode(self.block_tables, lens, cache, num_heads, num_rows)
        return plan

    def rows_of_contexts(self, cache: Tensor) -> list[Tensor]:
        """For each sequence the rows of the pool that hold its tokens, head by head: [num_kv_heads, context_len]."""
        layout = *cache.shape, *cache.stride()
        if layout not in self._rows:
            heads = torch.arange(cache.shape[2], device=cache.device)[:, None] * (cache.stride(2) // cache.shape[3])
            seqs = torch.arange(len(self.block_tables), device=cache.device)[:, None]
            positions = [torch.arange(context_len, device=cache.device)[None] for context_len in self.context_lens]
            self._rows[layout] = [
                token_rows(self.block_tables, seq, of_seq, cache) + heads
                for seq, of_seq in zip(seqs, positions, strict=True)
            ]
        return self._rows[layout]

    def mask(self, query_len: int, context_len: int, dtype: torch.dtype) -> Tensor:
        """[query_len, context_len]: 0 where a query, one of the last tokens, sees a key, else -inf."""
        if dtype not in self._masks:
            shape = min(max(self.query_lens), _QUERY_CHUNK), max(self.context_lens)
            hidden = torch.full(shape, -torch.inf, dtype=dtype, device=self.block_tables.device)
            self._masks[dtype] = hidden.triu_(shape[1] - shape[0] + 1)
        return self._masks[dtype][-query_len:, -context_len:]  # counted from the end all masks are the same


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
        backend: "torch"; "triton", on CUDA or, slowly and in float32, in Triton's interpreter; "auto" for the best.

    Returns:
        [num_seqs, num_heads, head_dim], dtype of the query.

    Raises:
        ValueError: for shapes that do not match, heads that do not divide, a block or length out of range, or a
            backend that cannot run here, with the reason.

    >>> keys = torch.zeros(8, 4, 1, 2); values = torch.full((8, 4, 1, 2), float("nan"))
    >>> values[5] = 1.0; values[2, 0] = 6.0  # the table [5, 2] with 5 tokens: four ones and a six
    >>> paged_attention(torch.zeros(1, 1, 2), keys, values, torch.tensor([[5, 2]]), torch.tensor([5])).tolist()
    [[[2.0, 2.0]]]

    Source: PagedAttention paper, section 4.1; vLLM 0.5.4, `vllm/attention/ops/paged_attn.py`.
    """
    _check_shapes(query, key_cache, value_cache)
    if block_tables.dim() != 2 or len(block_tables) != len(query) or list(context_lens.shape) != [len(query)]:
        raise ValueError(
            f"{len(query)} sequences need block_tables of {len(query)} rows and context_lens of {len(query)}, "
            f"got {list(block_tables.shape)} and {list(context_lens.shape)}"
        )
    if block_tables.is_floating_point() or context_lens.is_floating_point():
        raise ValueError(
            f"block_tables is {block_tables.dtype} and context_lens is {context_lens.dtype}, both must be integers"
        )
    num_blocks, block_size = key_cache.shape[:2]
    lens = context_lens.tolist()
    new = [min(context_len, 1) for context_len in lens]
    metadata = AttentionMetadata(block_tables, new, lens, num_blocks=num_blocks, block_size=block_size)
    return decode_attention(query, key_cache, value_cache, metadata, scale=scale, backend=backend)


def decode_attention(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    metadata: AttentionMetadata,
    *,
    scale: float | None = None,
    backend: str = "auto",
) -> Tensor:
    """`paged_attention` with the step's metadata, for a caller who has many layers.

    Shapes, arguments and errors are as `paged_attention` has them; shapes are not checked again.
    """
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    if backend not in BACKENDS:
        raise ValueError(f"backend is {backend!r}, it must be one of {BACKENDS}")
    same_dtype = query.dtype == key_cache.dtype == value_cache.dtype
    if backend == "triton" or (backend == "auto" and query.is_cuda):
        from refimpl.device import triton_kernels

        why_not = triton_kernels.why_unavailable(query)
        if why_not is None and not same_dtype:
            dtypes = f"{query.dtype}, {key_cache.dtype} and {value_cache.dtype}"
            why_not = f'query, keys and values are {dtypes}: make them one, or use backend="torch"'
        if why_not is None:
            tables, lens = metadata.block_tables, metadata.context_lens_tensor
            return triton_kernels.paged_attention_triton(query, key_cache, value_cache, tables, lens, scale=scale)
        if backend == "triton":
            raise ValueError(f"backend 'triton' cannot run here: {why_not}")
    if metadata.is_empty:
        return torch.zeros_like(query)
    wants_grad = torch.is_grad_enabled() and any(x.requires_grad for x in (query, key_cache, value_cache))
    if same_dtype and query.dtype == torch.float32 and query.device.type == "cpu" and not wants_grad:
        key_rows, value_rows = pool_rows(key_cache), pool_rows(value_cache)
        if key_rows is not None and value_rows is not None and key_cache.stride() == value_cache.stride():
            plan = metadata.decode_plan(key_cache, query.shape[1], len(key_rows))
            return sparse_paged_attention(query, key_rows, value_rows, plan, scale)
    outputs = torch.zeros_like(query)
    for seq, (table, context_len) in enumerate(zip(metadata.block_tables, metadata.context_lens, strict=True)):
        outputs[seq] = gathered_attention(query[seq], key_cache, value_cache, table, context_len, scale)
    return outputs


def gathered_attention(
    query: Tensor, key_cache: Tensor, value_cache: Tensor, block_table: Tensor, context_len: int, scale: float
) -> Tensor:
    """Decode attention of one sequence in its plainest form: gather its keys and values, then attend.

    query: [num_heads, head_dim]; block_table: [num_blocks], int64; context_len: tokens of the sequence; returns
    [num_heads, head_dim]. This is what every other path has to equal.
    """
    if context_len == 0:
        return torch.zeros_like(query)
    keys = gather(key_cache, block_table, context_len).float()
    values = gather(value_cache, block_table, context_len).float()
    group_size = query.shape[0] // keys.shape[1]
    keys = keys.repeat_interleave(group_size, dim=1)  # KV head of query head h: h // group_size
    values = values.repeat_interleave(group_size, dim=1)
    # float16 scores overflow before they are scaled, so the scale goes into the float32 query.
    scores = torch.einsum("hd,thd->ht", query.float() * scale, keys)
    return torch.einsum("ht,thd->hd", scores.softmax(dim=-1), values).to(query.dtype)


def gather(cache: Tensor, block_table: Tensor, num_tokens: int) -> Tensor:
    """A sequence's first `num_tokens` tokens, in their order: [num_tokens, num_kv_heads, head_dim].

    >>> pool = torch.arange(8.0).view(4, 2, 1, 1)  # 4 blocks of 2 tokens
    >>> gather(pool, torch.tensor([3, 0]), 3).flatten().tolist()
    [6.0, 7.0, 0.0]
    """
    num_blocks = -(-num_tokens // cache.shape[1])
    return cache[block_table[:num_blocks]].flatten(0, 1)[:num_tokens]


def paged_prefill_attention(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    metadata: AttentionMetadata,
    *,
    scale: float | None = None,
) -> Tensor:
    """Causal attention for the prompts of one or several sequences, laid end to end.

    A sequence's queries are its *last* `query_lens[i]` tokens, and each attends to itself and what comes before it,
    so a prompt of which the beginning is in the cache already needs no other function.

    Args:
        query: [sum of query_lens, num_heads, head_dim].
        key_cache, value_cache, scale: as for `paged_attention`.
        metadata: of the step.

    Returns:
        [sum of query_lens, num_heads, head_dim], dtype of the query.

    Raises:
        ValueError: for shapes that do not match, or heads that do not divide.

    Source: vLLM 0.5.4, `vllm/attention/ops/prefix_prefill.py`, `context_attention_fwd`.
    """
    _check_shapes(query, key_cache, value_cache)
    if sum(metadata.query_lens) != len(query):
        raise ValueError(f"query_lens add up to {sum(metadata.query_lens)}, query holds {len(query)} tokens")
    outputs = torch.empty_like(query)
    keys, values = _contexts(key_cache, metadata), _contexts(value_cache, metadata)
    of_each = (query.split(metadata.query_lens), outputs.split(metadata.query_lens), keys, values)  # type: ignore[no-untyped-call]
    for queries, output, seq_keys, seq_values in zip(*of_each, strict=True):
        if len(queries):
            _attend_causally(queries, seq_keys, seq_values, scale, metadata, output)
    return outputs


def _contexts(cache: Tensor, metadata: AttentionMetadata) -> Iterator[Tensor]:
    """The keys or values of each sequence in turn: [num_kv_heads, context_len, head_dim]."""
    pool = pool_rows(cache)
    if pool is not None:
        for rows in metadata.rows_of_contexts(cache):
            yield pool.index_select(0, rows.flatten()).view(*rows.shape, cache.shape[3])
    else:
        for table, context_len in zip(metadata.block_tables, metadata.context_lens, strict=True):
            yield gather(cache, table, context_len).transpose(0, 1)


def _attend_causally(
    query: Tensor, keys: Tensor, values: Tensor, scale: float | None, metadata: AttentionMetadata, output: Tensor
) -> None:
    """One sequence: query and output [query_len, num_heads, head_dim], keys [num_kv_heads, context_len, head_dim]."""
    on_cpu = query.device.type == "cpu"
    dtype = torch.float32 if on_cpu else query.dtype
    query, keys, values = query.to(dtype).transpose(0, 1), keys.to(dtype), values.to(dtype)
    query_len, context_len = query.shape[1], keys.shape[1]
    if on_cpu and query_len * context_len <= _FEW_PAIRS:
        mask = metadata.mask(query_len, context_len, dtype)
        output.copy_(_attend_plainly(query, keys, values, scale, mask).transpose(0, 1))
        return
    whole = query_len == context_len  # no part of it is cached: the plain causal case, which needs no mask
    chunk = query_len if whole else _QUERY_CHUNK
    for start in range(0, query_len, chunk):
        queries = query[:, start : start + chunk]
        end = context_len - query_len + start + queries.shape[1]  # no query of this chunk sees a key from here on
        attended = functional.scaled_dot_product_attention(
            queries[None],
            keys[None, :, :end],
            values[None, :, :end],
            attn_mask=None if whole or queries.shape[1] == 1 else metadata.mask(queries.shape[1], end, dtype),
            is_causal=whole,
            scale=scale,
            enable_gqa=True,
        )
        output[start : start + chunk] = attended[0].transpose(0, 1)


def _attend_plainly(query: Tensor, keys: Tensor, values: Tensor, scale: float | None, mask: Tensor) -> Tensor:
    """Two products around a softmax, heads first in all: [num_heads, query_len, head_dim]."""
    num_heads, _, head_dim = query.shape
    keys, values = (x.repeat_interleave(num_heads // len(keys), dim=0) for x in (keys, values))
    scale = head_dim**-0.5 if scale is None else scale
    scores = torch.baddbmm(mask.expand(num_heads, -1, -1), query, keys.transpose(1, 2), alpha=scale)
    return torch.bmm(scores.softmax(dim=-1), values)


def _used_blocks(block_tables: Tensor, context_lens: Tensor, num_blocks: int, block_size: int) -> Tensor:
    """The tables as int64, with block 0 behind each sequence's last block. ValueError for a block out of range."""
    first_position = torch.arange(block_tables.shape[1], device=block_tables.device) * block_size
    tables = torch.where(first_position < context_lens[:, None], block_tables.long(), 0)
    if context_lens.numel() and tables.numel() and context_lens.any():
        lowest, highest = (int(block) for block in tables.aminmax())
        if lowest < 0 or highest >= num_blocks:
            block = lowest if lowest < 0 else highest
            raise ValueError(f"block {block} is not in the cache, which holds blocks 0 to {num_blocks - 1}")
    return tables


def _check_lengths(
    block_tables: Tensor, query_lens: Sequence[int], context_lens: Sequence[int], block_size: int
) -> None:
    """ValueError for lengths that do not fit one another or the tables."""
    if not len(block_tables) == len(query_lens) == len(context_lens):
        raise ValueError(
            f"{len(block_tables)} block tables, {len(query_lens)} query_lens and {len(context_lens)} context_lens: "
            f"there must be one of each a sequence"
        )
    capacity = block_tables.shape[1] * block_size
    for query_len, context_len in zip(query_lens, context_lens, strict=True):
        if context_len < 0:
            raise ValueError(f"context_lens holds {context_len}, a length must be 0 or more")
        if context_len > capacity:
            raise ValueError(
                f"a context of {context_len} tokens does not fit its block table: "
                f"{block_tables.shape[1]} blocks of {block_size} hold {capacity}"
            )
        if not 0 <= query_len <= context_len:
            raise ValueError(f"a query of {query_len} tokens does not fit a context of {context_len}")


def _check_shapes(query: Tensor, key_cache: Tensor, value_cache: Tensor) -> None:
    """ValueError unless the shapes fit one another."""
    if query.dim() != 3 or key_cache.dim() != 4 or 0 in key_cache.shape[1:]:
        raise ValueError(
            f"query is {list(query.shape)} and key_cache is {list(key_cache.shape)}, they must be "
            f"[num_seqs, num_heads, head_dim] and [num_blocks, block_size, num_kv_heads, head_dim]"
        )
    if key_cache.shape != value_cache.shape:
        raise ValueError(f"key_cache is {list(key_cache.shape)}, value_cache is {list(value_cache.shape)}")
    num_heads, head_dim = query.shape[1:]
    num_kv_heads = key_cache.shape[2]
    if num_heads % num_kv_heads:
        raise ValueError(f"{num_heads} query heads cannot share {num_kv_heads} KV heads evenly")
    if head_dim != key_cache.shape[3]:
        raise ValueError(f"head_dim is {head_dim} in the query and {key_cache.shape[3]} in the cache")

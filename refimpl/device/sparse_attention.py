"""Decode attention on a CPU without gathering keys or values: the block table as the pattern of a sparse matrix.

Row (sequence, head) of a sparse matrix has an entry for each token of the context, its column being the row of the
pool where the token's key lies. Scores are then a product sampled at that pattern, and the weighted sum of values is
a sum over rows of the pool, both standard operations of torch; what they read is the context and nothing else. Long
contexts are cut into parts of equal length, so the cost is linear in all contexts together.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

PART_LENS = (1024, 512, 256, 128, 64, 32)  # tokens a part at most; which is taken depends on the contexts
_SUM = 0  # mode of torch.embedding_bag
_PART_COST, _MERGE_COST = 8, 4000  # of a part, in tokens, and of a merge, in tokens of one head

with warnings.catch_warnings():  # torch says once a process that its sparse matrices are in beta
    warnings.simplefilter("ignore", UserWarning)
    torch.sparse_csr_tensor([0, 1], [0], [0.0], size=(1, 1))


def token_rows(block_tables: Tensor, seqs: Tensor, positions: Tensor, cache: Tensor) -> Tensor:
    """The row of the pool in which the first KV head of each token lies.

    block_tables: [num_seqs, max_blocks], int64; seqs: [num_parts], int64, whose tokens; positions: [num_parts,
    num_tokens], int64; the same shape comes back. The rows of the other heads follow at a distance of
    `cache.stride(2) // head_dim`.
    """
    block_stride, token_stride = (stride // cache.shape[3] for stride in cache.stride()[:2])
    # one entry a token: a row of the table for each part would be as many entries as parts times blocks
    blocks = block_tables.take(seqs[:, None] * block_tables.shape[1] + positions // cache.shape[1])
    return blocks * block_stride + positions % cache.shape[1] * token_stride


def pool_rows(cache: Tensor) -> Tensor | None:
    """The pool as rows of one head of one token, [num_rows, head_dim], or None where strides do not allow it."""
    num_rows = _num_rows(cache.shape, cache.stride())
    head_dim = cache.shape[3]
    return cache.as_strided((num_rows, head_dim), (head_dim, 1)) if num_rows else None


@lru_cache(maxsize=64)
def _num_rows(shape: torch.Size, strides: tuple[int, ...]) -> int:
    """Rows from the start of a pool to its end, 0 where there is none or where strides do not fall on rows."""
    head_dim = shape[3]
    if strides[3] != 1 or any(stride % head_dim for stride in strides[:3]) or not shape.numel():
        return 0
    last = sum((size - 1) * stride for size, stride in zip(shape[:3], strides[:3], strict=True))
    return last // head_dim + 1


@dataclass(frozen=True, slots=True)
class DecodePlan:
    """Which rows of a pool a decode step reads, worked out once and used in every layer.

    part_len: tokens a part. seq_of_part: [num_parts]. bias: [num_parts, 1, part_len], 0 for the tokens of a context
    and -inf behind its end. columns: [num_parts * num_heads * part_len], the rows of the pool; behind the end that of
    the part's first token, whose values are real and weigh nothing. row_starts: [num_parts * num_heads], where each
    row of columns begins. scores: the sparse matrix that each layer fills anew. merge: None where every sequence is
    one part.
    """

    part_len: int
    seq_of_part: Tensor
    bias: Tensor
    columns: Tensor
    row_starts: Tensor
    scores: Tensor
    merge: MergePlan | None


@dataclass(frozen=True, slots=True)
class MergePlan:
    """How the parts of each sequence come together; a row is what one head got from one part.

    shape: [num_seqs, num_heads, most parts of a sequence], in which shares are worked out. rows:
    [num_parts * num_heads], the rows in the order of sequence, head, part. places: the same rows in that shape, laid
    flat. row_starts: [num_seqs * num_heads], where those of each head of a sequence begin.
    """

    shape: tuple[int, int, int]
    rows: Tensor
    places: Tensor
    row_starts: Tensor


def plan_decode(block_tables: Tensor, context_lens: Tensor, cache: Tensor, num_heads: int, num_rows: int) -> DecodePlan:
    """Lay out the parts of all contexts.

    Args:
        block_tables: [num_seqs, max_blocks], int64, valid for each context.
        context_lens: [num_seqs], int64.
        cache: a pool; only its shape and strides count.
        num_heads: query heads.
        num_rows: rows of the pool, as `pool_rows` gives them.
    """
    part_len = _part_len(context_lens, num_heads)
    parts = (context_lens + part_len - 1) // part_len
    seq_of_part = torch.repeat_interleave(parts)
    first_part = parts.cumsum(0) - parts
    start = (torch.arange(len(seq_of_part)) - first_part[seq_of_part]) * part_len
    positions = start[:, None] + torch.arange(part_len)
    padding = positions >= context_lens[seq_of_part][:, None]
    positions = torch.where(padding, start[:, None], positions)
    rows = token_rows(block_tables, seq_of_part, positions, cache)
    kv_head = torch.arange(num_heads) // (num_heads // cache.shape[2])
    offsets = kv_head * (cache.stride(2) // cache.shape[3])
    if num_rows < 1 << 31 and rows.numel() * num_heads < 1 << 31:
        rows, offsets = rows.int(), offsets.int()  # half the traffic; products are 64 bits wide all the same
    columns = (rows[:, None, :] + offsets[:, None]).flatten()
    num_entries = len(columns)
    row_starts = torch.arange(0, num_entries + 1, part_len, dtype=columns.dtype)
    scores = torch.sparse_csr_tensor(
        row_starts,
        columns,
        torch.empty(num_entries),
        size=(len(row_starts) - 1, num_rows),
        check_invariants=False,
    )
    return DecodePlan(
        part_len,
        seq_of_part,
        torch.zeros(padding.shape).masked_fill_(padding, -torch.inf)[:, None],
        columns,
        row_starts[:-1],
        scores,
        None if bool((parts == 1).all()) else _plan_merge(parts, num_heads),
    )


def _plan_merge(parts: Tensor, num_heads: int) -> MergePlan:
    """parts: [num_seqs], how many each has; they lie one behind the other."""
    most = int(parts.max())
    place = torch.arange(most)
    heads = torch.arange(num_heads)[:, None]
    rows = ((parts.cumsum(0) - parts)[:, None, None] + place) * num_heads + heads
    there = (place < parts[:, None, None]).expand_as(rows)
    lens = parts.repeat_interleave(num_heads)
    return MergePlan((*rows.shape,), rows[there], there.flatten().nonzero()[:, 0], lens.cumsum(0) - lens)


def sparse_paged_attention(
    query: Tensor, key_rows: Tensor, value_rows: Tensor, plan: DecodePlan, scale: float
) -> Tensor:
    """One token a sequence: [num_seqs, num_heads, head_dim] to the same, float32.

    Args:
        query: [num_seqs, num_heads, head_dim], float32.
        key_rows, value_rows: the pools as `pool_rows` gives them, of the same strides.
        plan: of this step.
        scale: factor of the scores.
    """
    num_parts = len(plan.seq_of_part)
    _, num_heads, head_dim = query.shape
    rows = (query if plan.merge is None else query[plan.seq_of_part]).reshape(num_parts * num_heads, head_dim)
    scores = plan.scores.values().view(num_parts, num_heads, plan.part_len)
    scores.copy_(plan.bias)  # what the product is added to
    torch.sparse.sampled_addmm(plan.scores, rows, key_rows.t(), beta=1.0, alpha=scale, out=plan.scores)
    highest = None if plan.merge is None else scores.amax(dim=-1)
    weights = torch.softmax(scores, dim=-1, out=scores)
    outputs = _sum_of_rows(value_rows, plan.columns, plan.row_starts, weights.view(-1))
    if highest is not None and plan.merge is not None:
        lses = highest - weights.amax(dim=-1).log_()  # softmax makes exp(s - lse) of the largest score s
        outputs = _merge(outputs, lses, plan.merge)
    return outputs.view(query.shape)


def _merge(outputs: Tensor, lses: Tensor, plan: MergePlan) -> Tensor:
    """`merge_attention_states`, as one more weighted sum of rows: a part's share is the softmax over its lse.

    outputs: [num_parts * num_heads, head_dim]; lses: [num_parts, num_heads]; [num_seqs * num_heads, head_dim].
    """
    of_parts = lses.new_full((math.prod(plan.shape),), -torch.inf)
    of_parts[plan.places] = lses.view(-1)[plan.rows]
    shares = of_parts.view(plan.shape).softmax(dim=-1).view(-1)[plan.places]
    return _sum_of_rows(outputs, plan.rows, plan.row_starts, shares)


def _sum_of_rows(rows: Tensor, columns: Tensor, starts: Tensor, weights: Tensor) -> Tensor:
    """For each start the weighted sum of the rows that columns name from there to the next: [num_starts, row_len]."""
    sums: Tensor = torch.embedding_bag(rows, columns, starts, mode=_SUM, per_sample_weights=weights)[0]
    return sums


def _part_len(context_lens: Tensor, num_heads: int) -> int:
    """The length of parts that costs least: long parts are few, short ones leave little behind the end."""
    longest = max(int(context_lens.max()), 1)
    costs = {}
    for part_len in PART_LENS:
        parts = (context_lens + part_len - 1) // part_len
        part_len = min(part_len, longest)
        merge_cost = _MERGE_COST if longest > part_len else 0
        costs[part_len] = int(parts.sum()) * (part_len + _PART_COST) * num_heads + merge_cost
    return min(costs, key=costs.__getitem__)

"""Tensors for attention at sizes that fit on a page: what a check of chapter 10 calls a learner's code with.

The history that a check shows begins with a call of one of these, so that the learner can make the same tensors. The
same arguments give the same numbers on every machine. No slot without a token, and no entry of a table behind a
sequence's last block, holds anything that may be used.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from refimpl.checks.attention_layouts import NOT_A_BLOCK, ORDERS
from refimpl.checks.memory_order import laid_out

SPARE_BLOCKS = 2

# kind of scores -> element of the query; element of token t's key, out of a random number from -2 to 2
SCORES: dict[str, tuple[Callable[[float], float], Callable[[float, int], float]]] = {
    "usual": (lambda drawn: drawn, lambda drawn, t: drawn),
    "equal": (lambda drawn: 0.0, lambda drawn, t: drawn),
    "high": (lambda drawn: 400.0, lambda drawn, t: 1 + drawn / 100),
    "low": (lambda drawn: -400.0, lambda drawn, t: 1 + drawn / 100),
    "rising": (lambda drawn: 60.0, lambda drawn, t: t + drawn / 100),
    "falling": (lambda drawn: 60.0, lambda drawn, t: drawn / 100 - t),
    "apart": (lambda drawn: math.copysign(400.0, drawn), lambda drawn, t: 1 + drawn / 100),
}


def numbered_cache(
    num_blocks: int, block_size: int, num_kv_heads: int = 1, head_dim: int = 1, layout: str = "tokens first"
) -> Tensor:
    """A cache in which slot s holds s, and s.hd in element d of head h.

    >>> numbered_cache(num_blocks=2, block_size=2, num_kv_heads=2).tolist()[1][0]  # slot 2
    [[2.0], [2.0999999046325684]]
    """
    slots = torch.arange(num_blocks * block_size).view(num_blocks, block_size, 1, 1)
    heads, dims = torch.arange(num_kv_heads).view(-1, 1) / 10, torch.arange(head_dim) / 100
    return in_layout((slots + heads + dims)[None].float(), layout)[0]


def in_a_row(
    num_tokens: int, num_kv_heads: int, group: int, head_dim: int, scores: str = "usual", seed: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """A query token, and the keys and values of some tokens, one after the other.

    scores: "usual", random and small; "equal", all 0, with values 1, 3, 5 … in KV head 0 and ten times that in KV
        head 1; "high" and "low", hundreds above or below 0; "rising" and "falling", each by some 60 above or below
        the one before; "apart", some heads' hundreds above others'.

    Returns:
        Query [num_kv_heads * group, head_dim], keys and values [num_tokens, num_kv_heads, head_dim].

    >>> query, keys, values = in_a_row(num_tokens=2, num_kv_heads=2, group=2, head_dim=1, scores="equal")
    >>> query.tolist(), values.tolist()
    ([[0.0], [0.0], [0.0], [0.0]], [[[1.0], [10.0]], [[3.0], [30.0]]])
    """
    rng = random.Random(f"{seed}/{num_tokens}/{num_kv_heads}/{group}/{head_dim}")
    of_query, of_key = SCORES[scores]

    def drawn(*shape: int, element: Callable[[float, int], float]) -> Tensor:
        rows = [[element(rng.randint(-200, 200) / 100, t) for _ in range(shape[1] * shape[2])] for t in range(shape[0])]
        return torch.tensor(rows, dtype=torch.float32).view(shape)

    query = drawn(1, num_kv_heads * group, head_dim, element=lambda number, _: of_query(number))[0]
    keys = drawn(num_tokens, num_kv_heads, head_dim, element=of_key)
    values = drawn(num_tokens, num_kv_heads, head_dim, element=lambda number, _: number)
    if scores == "equal":
        tokens, heads = torch.arange(num_tokens).view(-1, 1, 1), torch.arange(num_kv_heads).view(-1, 1)
        values = ((1 + 2 * tokens) * 10**heads + torch.arange(head_dim)).float()
    return query, keys, values


def in_blocks(
    context_lens: Sequence[int],
    block_size: int,
    num_kv_heads: int,
    group: int,
    head_dim: int,
    scores: str = "usual",
    seed: int = 0,
    layout: str = "tokens first",
    unused: float = math.nan,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Several sequences in the blocks of two caches, in no order; all slots without a token hold NaN, or `unused`.

    layout: "tokens first", contiguous; "heads first", as `KVCache` lays them out; "interleaved", a block of keys and
        a block of values in turn; "transposed", a block's slots innermost, as vLLM 0.5.4 lays values out, and the
        table by columns.

    Returns:
        Query [num_seqs, num_heads, head_dim], key cache and value cache [num_blocks, block_size, num_kv_heads,
        head_dim], block tables [num_seqs, max_blocks] and context lengths [num_seqs].

    >>> query, keys, values, tables, lens = in_blocks([4], 2, 1, 1, 1, scores="equal", seed=9)
    >>> tables.tolist(), values[tables[0, :2]].flatten().tolist()
    ([[3, 2, 1]], [1.0, 3.0, 5.0, 7.0])
    """
    needed = [-(-context_len // block_size) for context_len in context_lens]
    num_blocks = sum(needed) + SPARE_BLOCKS
    *tables, spare = _tables(needed, num_blocks, seed)
    caches = torch.full((2, num_blocks, block_size, num_kv_heads, head_dim), float(unused))
    queries = []
    for seq, (context_len, table) in enumerate(zip(context_lens, tables, strict=True)):
        query, *tokens = in_a_row(context_len, num_kv_heads, group, head_dim, scores, seed=seed + seq)
        queries.append(query)
        for t in range(context_len):
            for cache, of_token in zip(caches, tokens, strict=True):
                cache[table[t // block_size], t % block_size] = of_token[t]
    key_cache, value_cache = in_layout(caches, layout)
    behind = NOT_A_BLOCK if seed % 2 == 0 else spare[0]
    rows = [table + [behind] * (max(needed) + 1 - len(table)) for table in tables]
    block_tables = torch.tensor(rows)
    if layout == "transposed":
        block_tables = block_tables.T.contiguous().T
    return torch.stack(queries), key_cache, value_cache, block_tables, torch.tensor(context_lens)


def in_layout(caches: Tensor, layout: str) -> tuple[Tensor, ...]:
    """Caches [caches, num_blocks, block_size, num_kv_heads, head_dim], each with the strides of this layout."""
    return tuple(laid_out(caches, ORDERS[layout], ORDERS["tokens first"]))


def _tables(needed: Sequence[int], num_blocks: int, seed: int) -> list[list[int]]:
    """For each sequence so many blocks, in no order; then those that are left.

    A block stands at its own number nowhere, if that can be.
    """
    rng = random.Random(seed)
    for _ in range(20):
        order = rng.sample(range(num_blocks), num_blocks)
        tables = []
        for count in needed:
            tables.append(order[:count])
            order = order[count:]
        if not any(block == index for table in tables for index, block in enumerate(table)):
            break
    return [*tables, order]


class LongestRow(TorchFunctionMode):
    """Sees how long the rows are whose exponentials are taken, softmax included, while it is entered."""

    def __init__(self) -> None:
        super().__init__()
        self.length = 0

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = getattr(function, "__name__", "")
        if re.match("exp|_*r?pow|softmax|log_?sum_?exp|log_softmax|scaled_dot", name) and not name.startswith("expand"):
            tensors = [argument for argument in (*args, *(kwargs or {}).values()) if isinstance(argument, Tensor)]
            self.length = max([self.length, *(size for tensor in tensors for size in tensor.shape)])
        return function(*args, **(kwargs or {}))

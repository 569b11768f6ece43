"""Sequences in shuffled blocks, in pools of any layout, beside their attention computed head by head in float64."""

from __future__ import annotations

import math
import mmap

import torch
from torch import Tensor

NAN = float("nan")
LAYOUTS = ("tokens first", "heads first", "interleaved", "keys and values unlike", "gaps")


def dense(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """One query token [heads, dim] against [tokens, kv_heads, dim], head by head in float64."""
    rows = []
    for head in range(query.shape[0]):
        kv_head = head * keys.shape[1] // query.shape[0]
        scores = keys[:, kv_head].double() @ query[head].double() / math.sqrt(query.shape[1])
        rows.append(scores.softmax(0) @ values[:, kv_head].double())
    return torch.stack(rows).to(query.dtype)


def in_layout(keys: Tensor, values: Tensor, layout: str) -> tuple[Tensor, Tensor]:
    """The same pools, otherwise strided: "heads first" is how `KVCache` lays them out, "gaps" is no rows at all."""
    if layout == "interleaved":
        both = torch.stack([keys, values], dim=1)
        return both[:, 0], both[:, 1]
    if layout == "gaps":
        return tuple(torch.stack([pool, pool * NAN], dim=-1)[..., 0] for pool in (keys, values))
    heads_first = [pool.transpose(1, 2).contiguous().transpose(1, 2) for pool in (keys, values)]
    return {
        "tokens first": (keys, values),
        "heads first": tuple(heads_first),
        "keys and values unlike": (keys, heads_first[1]),
    }[layout]


class Batch:
    """Sequences of some lengths in shuffled blocks of pools that hold NaN wherever no token is.

    Attributes are `paged_attention`'s arguments and `expected`, its answer; `tokens` is each sequence's keys and
    values. Entries of no block are `unused` in the tables.
    """

    def __init__(
        self,
        lengths,
        heads=4,
        kv_heads=2,
        dim=8,
        block_size=4,
        seed=0,
        table_dtype=torch.int32,
        dtype=torch.float32,
        layout="tokens first",
        unused=-7,
    ):
        generator = torch.Generator().manual_seed(seed)
        needed = [-(-length // block_size) for length in lengths]
        order = iter(torch.randperm(sum(needed) + 3, generator=generator).tolist())
        self.tables = torch.full((len(lengths), max([*needed, 1])), unused, dtype=table_dtype)
        shape = (sum(needed) + 3, block_size, kv_heads, dim)
        keys, values = torch.full(shape, NAN, dtype=dtype), torch.full(shape, NAN, dtype=dtype)
        self.query = torch.randn(len(lengths), heads, dim, generator=generator).to(dtype)
        self.lens = torch.tensor(lengths, dtype=table_dtype)
        self.tokens, rows = [], []
        for seq, length in enumerate(lengths):
            tokens = torch.randn(2, length, kv_heads, dim, generator=generator).to(dtype)
            for i in range(needed[seq]):
                self.tables[seq, i] = block = next(order)
                here = slice(i * block_size, min((i + 1) * block_size, length))
                for pool, new in ((keys, tokens[0]), (values, tokens[1])):
                    pool[block, : here.stop - here.start] = new[here]
            self.tokens.append(tokens)
            rows.append(dense(self.query[seq], *tokens) if length else torch.zeros(heads, dim, dtype=dtype))
        self.expected = torch.stack(rows)
        self.keys, self.values = in_layout(keys, values, layout)
        self.block_size, self.layout = block_size, layout

    def arguments(self) -> tuple[Tensor, ...]:
        return self.query, self.keys, self.values, self.tables, self.lens

    def moved(self, order: Tensor) -> tuple[Tensor, ...]:
        """The arguments for the same tokens in other blocks: what was block `order[i]` is block i."""
        pools = in_layout(*(pool.contiguous()[order] for pool in (self.keys, self.values)), self.layout)
        tables = torch.argsort(order)[self.tables.long().clamp(min=0)]
        return self.query, *pools, tables.to(self.tables.dtype), self.lens

    def with_unused(self, number: float) -> tuple[Tensor, ...]:
        """The arguments with another number in the slots where no token is."""
        pools = [torch.where(pool.isnan(), number, pool) for pool in (self.keys.contiguous(), self.values.contiguous())]
        return self.query, *in_layout(*pools, self.layout), self.tables, self.lens


def far_pool(shape: tuple[int, ...], strides: tuple[int, ...]) -> Tensor:
    """A float32 pool of zeros that is larger than memory: pages that nobody writes are never there (Linux)."""
    size = 4 * (1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True)))
    no_reserve = 0x4000  # MAP_NORESERVE
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | no_reserve)
    return torch.frombuffer(memory, dtype=torch.float32).as_strided(shape, strides)

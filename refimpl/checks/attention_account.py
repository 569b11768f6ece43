"""What attention must give, and what it gives under a wrong thought: sums over Python lists, in double precision.

Shares no code with refimpl's attention and knows no tensors. `Tokens` is one query token with the keys and values that
it attends to, in order; a state is what is known of one head: its output and lse, the log of the sum of exp(score).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from refimpl.checks.attention_layouts import LAYOUTS

NAN, INFINITY = math.nan, math.inf
TOLERANCE = 1e-3  # of a number, or of 1 where it is smaller: many times what float32 loses in any order of adding up

ROW_SIZES = ("num_kv_heads", "group", "head_dim")

Vector = list[float]


@dataclass(frozen=True, slots=True)
class State:
    """One head's output [head_dim] and lse."""

    output: Vector
    lse: float


@dataclass(frozen=True, slots=True)
class Tokens:
    """query: [num_heads][head_dim]; keys, values: [num_tokens][num_kv_heads][head_dim]; scale as it was given."""

    query: list[Vector]
    keys: list[list[Vector]]
    values: list[list[Vector]]
    scale: float | None
    num_kv_heads: int

    @property
    def head_dim(self) -> int:
        """Elements of a head."""
        return len(self.query[0])

    @property
    def group(self) -> int:
        """Query heads that share a KV head."""
        return len(self.query) // self.num_kv_heads

    @property
    def factor(self) -> float:
        """The factor of the scores, the usual one where none was given."""
        return 1 / math.sqrt(self.head_dim) if self.scale is None else self.scale

    def part(self, first: int, last: int) -> Tokens:
        """The same with the tokens from `first` to before `last` alone."""
        return replace(self, keys=self.keys[first:last], values=self.values[first:last])

    def scored(self, factor: float) -> Tokens:
        """The same with another factor of the scores."""
        return replace(self, scale=factor)

    def kv_head(self, head: int) -> int:
        """The KV head that a query head reads."""
        return head // self.group

    def scores(self, head: int, kv_head: int | None = None) -> Vector:
        """Scores of all the tokens."""
        kv_head = self.kv_head(head) if kv_head is None else kv_head
        return [self.factor * dot(self.query[head], key[kv_head]) for key in self.keys]

    def weighted(self, head: int, weights: Sequence[float], kv_head: int | None = None) -> Vector:
        """The sum of the values, each times its weight."""
        kv_head = self.kv_head(head) if kv_head is None else kv_head
        columns = range(self.head_dim)
        return [sum(w * value[kv_head][d] for w, value in zip(weights, self.values, strict=True)) for d in columns]

    def states(self, kv_head_of: Callable[[int], int] | None = None) -> list[State]:
        """Each head's state: what attention must give."""
        kv_head_of = kv_head_of or self.kv_head
        return [self._state(head, kv_head_of(head)) for head in range(len(self.query))]

    def _state(self, head: int, kv_head: int) -> State:
        scores = self.scores(head, kv_head)
        if not scores:
            return State([0.0] * self.head_dim, -INFINITY)
        largest = max(scores)
        weights = [exp(score - largest) for score in scores]
        total = sum(weights)
        return State([x / total for x in self.weighted(head, weights, kv_head)], largest + math.log(total))


def dot(a: Iterable[float], b: Iterable[float]) -> float:
    """The sum of the products."""
    return sum(x * y for x, y in zip(a, b, strict=True))


def exp(x: float) -> float:
    """The exponential, infinite where float32 ends."""
    return INFINITY if x > 88.7 else math.exp(x)


def merged(parts: Sequence[State], weights: Sequence[float] | None = None) -> State:
    """One state for several; `weights` are those of a wrong thought, and lse is right all the same."""
    used = [part for part in parts if part.lse > -INFINITY]
    if not used:
        return State([0.0] * len(parts[0].output), -INFINITY)
    largest = max(part.lse for part in used)
    right = [math.exp(part.lse - largest) for part in parts]
    weights = [w / sum(right) for w in right] if weights is None else weights
    columns = range(len(parts[0].output))
    output = [sum(w * part.output[d] for w, part in zip(weights, parts, strict=True)) for d in columns]
    return State(output, largest + math.log(sum(right)))


def same(got: Any, expected: Any) -> bool:
    """Whether nested lists of numbers agree, `got` with `expected`: NaN with NaN, others within the tolerance."""
    if isinstance(expected, list):
        return isinstance(got, list) and len(got) == len(expected) and all(map(same, got, expected))
    if isinstance(got, list):
        return False
    if math.isnan(expected) or math.isinf(expected):
        return bool(got == expected) or (math.isnan(got) and math.isnan(expected))
    return bool(abs(got - expected) <= TOLERANCE * max(1.0, abs(expected)))


def finite(numbers: Any) -> bool:
    """Whether nested lists hold neither NaN nor infinity."""
    return all(map(finite, numbers)) if isinstance(numbers, list) else math.isfinite(numbers)


def rounded(numbers: Any) -> str:
    """Numbers in words, three digits each: the same on every machine.

    >>> rounded([1.0, -0.12345, math.nan])
    '[1, -0.123, nan]'
    """
    if isinstance(numbers, list):
        return f"[{', '.join(map(rounded, numbers))}]"
    return f"{numbers:.3g}".replace("-0.000", "0") if numbers else "0"


class Paged:
    """Sequences in the blocks of two caches, and the tokens that each attends to, found by its table.

    `setup` has the sizes, and what stands in slots without a token where that is not NaN; `kind` is that of the scores
    and `layout` that of the caches.
    """

    def __init__(
        self,
        context_lens: Sequence[int],
        setup: Mapping[str, int],
        kind: str,
        scale: float | None,
        seed: int,
        layout: str,
    ) -> None:
        from refimpl.checks.attention_inputs import in_blocks

        self.context_lens, self.block_size = list(context_lens), setup["block_size"]
        self.kind, self.scale = kind, scale
        sizes = self.block_size, setup["num_kv_heads"], setup["num_groups"], head_dim_of(setup)
        unused = setup.get("unused", NAN)
        self.tensors = in_blocks(self.context_lens, *sizes, kind, seed, layout, unused)
        self.before = [tensor.clone() for tensor in self.tensors]
        self.line = (
            f"query, key_cache, value_cache, block_tables, context_lens = in_blocks("
            f"{self.context_lens}, {said_sizes(('block_size', *ROW_SIZES), sizes)}{said_kind(kind)}, seed={seed}"
            f"{said_layout(layout)}{'' if math.isnan(unused) else f', unused={unused}'})"
        )
        self.query, self.keys, self.values, self.tables = (tensor.tolist() for tensor in self.tensors[:4])
        self.num_kv_heads = setup["num_kv_heads"]
        self.head_dim = head_dim_of(setup)

    def tokens(self, seq: int, table: Sequence[int] | None = None) -> Tokens:
        """What sequence `seq` attends to, by its own row of the table or by another table."""
        context_len = self.context_lens[seq]
        table = self.tables[seq] if table is None else table
        size, num_blocks = self.block_size, len(self.keys)
        nothing = [[NAN] * self.head_dim] * self.num_kv_heads

        def found(cache: Any) -> list[Any]:
            places = [(table[min(t // size, len(table) - 1)], t % size) for t in range(context_len)]
            return [cache[block][offset] if block < num_blocks else nothing for block, offset in places]

        return Tokens(self.query[seq], found(self.keys), found(self.values), self.scale, self.num_kv_heads)


def said_sizes(names: Iterable[str], sizes: Iterable[int]) -> str:
    """Sizes as arguments by name, as a learner would type them."""
    return ", ".join(f"{name}={size}" for name, size in zip(names, sizes, strict=True))


def said_kind(kind: str) -> str:
    """The argument for the kind of scores, where it is none of the usual."""
    return "" if kind == "usual" else f", scores={kind!r}"


def said_layout(layout: str) -> str:
    """The argument for the layout of the caches, where it is none of the usual."""
    return "" if layout == LAYOUTS[0] else f", layout={layout!r}"


def head_dim_of(setup: Mapping[str, int]) -> int:
    """Elements of a head: a power of two, as kernels want it."""
    return int(2 ** (setup["num_dims"] - 1))

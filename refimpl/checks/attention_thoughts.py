"""By which wrong thought an answer of chapter 10 came about: for each thought the numbers that it gives.

An answer that is wrong is compared with them; the order is that of their telling, where two give the same. Worlds ask
only about examples, whose sizes are such that they do not. `got` and `output` are the learner's; `right` and `tokens`
are the account's, or `paged` and one `seq` of it; `kind` is that of the scores, `layout` that of the caches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from refimpl.checks.attention_account import INFINITY, NAN, Paged, State, Tokens, exp, finite, merged, same
from refimpl.checks.attention_layouts import LAYOUTS

Thought = tuple[str, Callable[[], bool]]  # a misconception, and whether the answer is what it gives


def recognised(thoughts: Iterable[Thought]) -> str | None:
    """The first thought that the answer comes from, or None."""
    return next((name for name, matches in thoughts if matches()), None)


def apart(states: Iterable[State]) -> tuple[list[list[float]], list[float]]:
    """The outputs of all heads, and their lses."""
    together = list(states)
    return [state.output for state in together], [state.lse for state in together]


def gives(output: Any, states: Iterable[State]) -> bool:
    """Whether the output is that of these states."""
    return same(output, apart(states)[0])


def gather_thoughts(
    got: Any, slots: list[int], right: list[int], table: tuple[int, ...], size: int
) -> Iterator[Thought]:
    """What may be wrong with the slots that were read by the table, or with the shape of what was returned."""
    blocks = table[: -(-len(right) // size)]
    whole = [block * size + offset for block in blocks for offset in range(size)]
    full = len(right) // size * size
    yield "blocks-not-joined", lambda: got.dim() == 4
    yield "tail-left-out", lambda: 0 < len(right) != full and slots == right[:full]
    yield "whole-blocks", lambda: len(whole) != len(right) and slots == whole
    yield "newest-token-left-out", lambda: len(right) > 1 and slots == right[:-1]
    wrong = {
        "logical-for-physical": list(range(len(right))),
        "number-not-multiplied": [table[t // size] + t % size for t in range(len(right))],
        "runs-on-in-memory": [right[0] + t for t in range(len(right))] if right else [],
        "order-of-memory": sorted(right),
        "first-block-for-all": [right[0] + t % size for t in range(len(right))] if right else [],
        "one-position-on": [*right[1:], *whole[len(right) :][:1]],
    }
    for name, thought in wrong.items():
        yield name, lambda thought=thought: thought != right and slots == thought  # type: ignore[misc]


def state_thoughts(tokens: Tokens, kind: str, output: Any, lse: Any) -> Iterator[Thought]:
    """What may be wrong with one softmax over all tokens; with its lse alone where the output is right."""
    right, right_lse = apart(tokens.states())
    if same(output, right) and kind == "usual":
        largest = [max(tokens.scores(head), default=0.0) for head in range(len(tokens.query))]
        without = [of_all - most for of_all, most in zip(right_lse, largest, strict=True)]
        yield "lse-without-the-maximum", lambda: same(lse, without)
        yield "lse-is-the-maximum", lambda: same(lse, largest)
        yield "lse-is-the-sum", lambda: any(same(lse, [exp(x) for x in of]) for of in (without, right_lse))
    if same(output, right):
        return
    root = tokens.head_dim**0.5
    yield "heads-dealt-out", lambda: gives(output, tokens.states(lambda head: head % tokens.num_kv_heads))
    yield "one-kv-head-for-all", lambda: gives(output, tokens.states(lambda head: 0))
    yield (
        "own-scale-for-the-given",
        lambda: tokens.scale is not None and gives(output, tokens.scored(1 / root).states()),
    )
    yield (
        "scaled-twice",
        lambda: tokens.scale is not None and gives(output, tokens.scored(tokens.factor / root).states()),
    )
    yield "not-scaled", lambda: gives(output, tokens.scored(1.0).states())
    yield "scaled-up", lambda: tokens.scale is None and gives(output, tokens.scored(root).states())
    yield "scaled-without-the-root", lambda: tokens.scale is None and gives(output, tokens.scored(1 / root**2).states())
    yield "keys-and-values-swapped", lambda: gives(output, _swapped(tokens).states())
    yield "softmax-over-heads", lambda: kind == "usual" and _over_heads(tokens, output)
    yield "not-divided", lambda: any(same(output, undivided) for undivided in _undivided(tokens))


def _swapped(tokens: Tokens) -> Tokens:
    return Tokens(tokens.query, tokens.values, tokens.keys, tokens.scale, tokens.num_kv_heads)


def _undivided(tokens: Tokens) -> Iterator[list[list[float]]]:
    """The sums of the weighted values, with and without the largest score taken off."""
    for factor in (1.0, 0.0):
        outputs = []
        for head in range(len(tokens.query)):
            scores = tokens.scores(head)
            most = factor * max(scores)
            outputs.append(tokens.weighted(head, [exp(score - most) for score in scores]))
        yield outputs


def _over_heads(tokens: Tokens, output: Any) -> bool:
    """Whether the weights of each token add up to 1 over the heads, or over the heads of a group."""
    scores = [tokens.scores(head) for head in range(len(tokens.query))]
    for size in {len(scores), tokens.group, 1}:
        outputs = []
        for head in range(len(scores)):
            together = range(head // size * size, head // size * size + size)
            if size == 1:  # over the KV heads, each with its own member of a group
                together = range(head % tokens.group, len(scores), tokens.group)
            weights = []
            for t in range(len(tokens.keys)):
                most = max(scores[other][t] for other in together)
                weights.append(exp(scores[head][t] - most) / sum(exp(scores[other][t] - most) for other in together))
            outputs.append(tokens.weighted(head, weights))
        if same(output, outputs):
            return True
    return False


class _Thinking:
    """One head's online softmax over blocks, with a step or two left out or done wrongly."""

    def __init__(self, tokens: Tokens, block_size: int) -> None:
        self.tokens, self.block_size = tokens, block_size

    def states(
        self,
        of_sum: Callable[[float, float], float] = lambda old, new: exp(old - new),
        of_output: Callable[[float, float], float] = lambda old, new: exp(old - new),
        divided_each_time: bool = False,
    ) -> list[State]:
        """What each head would have at the end; `of_sum` and `of_output` are the factors, by old and new maximum."""
        return [self._state(head, of_sum, of_output, divided_each_time) for head in range(len(self.tokens.query))]

    def _state(self, head: int, of_sum: Any, of_output: Any, divided_each_time: bool) -> State:
        most, total, output = -INFINITY, 0.0, [0.0] * self.tokens.head_dim
        for first in range(0, len(self.tokens.keys), self.block_size):
            block = self.tokens.part(first, first + self.block_size)
            scores = block.scores(head)
            new_most = max(most, *scores)
            old = new_most if most == -INFINITY else most  # nothing is rescaled before there is something
            weights = [exp(score - new_most) for score in scores]
            total = total * of_sum(old, new_most) + sum(weights)
            added = block.weighted(head, weights)
            output = [x * of_output(old, new_most) + y for x, y in zip(output, added, strict=True)]
            if divided_each_time:
                output = [x / total for x in output]
            most = new_most
        if not divided_each_time:
            output = [x / total for x in output]
        return State(output, NAN)


def online_thoughts(tokens: Tokens, block_size: int, output: Any) -> Iterator[Thought]:
    """What may be wrong with an online softmax."""

    def kept(old: float, new: float) -> float:
        return 1.0

    def upside_down(old: float, new: float) -> float:
        return exp(new - old)

    if len(tokens.keys) <= block_size or gives(output, tokens.states()):
        return
    thinking = _Thinking(tokens, block_size)
    parts = [tokens.part(t, t + block_size) for t in range(0, len(tokens.keys), block_size)]
    states = [part.states() for part in parts]
    heads = range(len(tokens.query))
    weights = [1 / len(parts)] * len(parts)
    average = [merged([of_part[head] for of_part in states], weights) for head in heads]
    yield "sum-not-rescaled", lambda: gives(output, thinking.states(of_sum=kept))
    yield "output-not-rescaled", lambda: gives(output, thinking.states(of_output=kept))
    yield "nothing-rescaled", lambda: gives(output, thinking.states(of_sum=kept, of_output=kept))
    yield "rescaled-upside-down", lambda: gives(output, thinking.states(of_sum=upside_down, of_output=upside_down))
    yield "divided-every-time", lambda: gives(output, thinking.states(divided_each_time=True))
    yield "last-block-alone", lambda: gives(output, states[-1])
    yield "blocks-averaged", lambda: gives(output, average)


def gives_part(tokens: Tokens, num_tokens: int, output: Any) -> bool:
    """Whether an output is that of the first tokens alone."""
    return 0 < num_tokens < len(tokens.keys) and gives(output, tokens.part(0, num_tokens).states())


def merge_thoughts(paged: Paged, seq: int, output: Any, size: int) -> Iterator[Thought]:
    """What may be wrong with the parts of one sequence, or with whose tokens they are."""
    context_len = paged.context_lens[seq]
    tokens = paged.tokens(seq)
    parts = [tokens.part(t, t + size) for t in range(0, context_len, size)]
    states = [part.states() for part in parts]
    heads = range(len(tokens.query))

    def weighed(weigh: Callable[[list[State], int], list[float]]) -> bool:
        of_each = [[of_part[head] for of_part in states] for head in heads]
        return len(parts) > 1 and same(
            output, [merged(of_head, weigh(of_head, head)).output for head, of_head in enumerate(of_each)]
        )

    def over_heads(of_head: list[State], head: int) -> list[float]:
        others = [[of_part[other].lse for other in heads] for of_part in states]
        return [exp(state.lse) / sum(map(exp, lses)) for state, lses in zip(of_head, others, strict=True)]

    count = len(parts)
    yield "parts-averaged", lambda: weighed(lambda of_head, head: [1 / count] * count)
    yield (
        "weighed-by-length",
        lambda: weighed(lambda of_head, head: [len(part.keys) / context_len for part in parts]),
    )
    yield "parts-added-up", lambda: weighed(lambda of_head, head: [1.0] * count)
    yield "lse-for-a-weight", lambda: weighed(_by_lse)
    yield "weights-not-divided", lambda: weighed(lambda of_head, head: [exp(state.lse) for state in of_head])
    yield "weights-not-divided", lambda: weighed(_by_largest)
    yield "weighed-over-heads", lambda: weighed(over_heads)
    yield "last-part-left-out", lambda: gives_part(tokens, context_len // size * size, output)
    yield "first-part-alone", lambda: count > 1 and gives(output, states[0])
    yield "last-part-alone", lambda: count > 1 and gives(output, states[-1])
    shortest = min(filter(None, paged.context_lens))
    yield "one-length-for-all", lambda: context_len > shortest and gives_part(tokens, shortest, output)
    by_row_0 = paged.tokens(seq, table=paged.tables[0])
    yield "one-row-for-all", lambda: seq > 0 and gives(output, by_row_0.states())
    default = tokens.scored(tokens.head_dim**-0.5)
    yield (
        "scale-not-passed-on",
        lambda: paged.scale is not None and gives(output, default.states()),
    )


def _by_lse(of_head: list[State], head: int) -> list[float]:
    total = sum(state.lse for state in of_head)
    return [state.lse / total if total else NAN for state in of_head]


def _by_largest(of_head: list[State], head: int) -> list[float]:
    most = max(state.lse for state in of_head)
    return [exp(state.lse - most) for state in of_head]


def kernel_thoughts(paged: Paged, seq: int, output: Any, layout: str) -> Iterator[Thought]:
    """What may be wrong with a kernel's loop, or with the addresses that it reads."""
    context_len, size = paged.context_lens[seq], paged.block_size
    if not context_len:
        return
    tokens = paged.tokens(seq)

    yield "unused-slots-counted", lambda: _gives_padded(tokens, -context_len % size, output)
    yield "full-blocks-only", lambda: gives_part(tokens, context_len // size * size, output)
    yield "first-block-alone", lambda: gives_part(tokens, size, output)
    yield from online_thoughts(tokens, size, output)
    yield "not-scaled", lambda: gives(output, tokens.scored(1.0).states())
    yield "one-kv-head-for-all", lambda: gives(output, tokens.states(lambda head: 0))
    yield "heads-dealt-out", lambda: gives(output, tokens.states(lambda head: head % tokens.num_kv_heads))
    yield "one-row-for-all", lambda: seq > 0 and gives(output, paged.tokens(seq, table=paged.tables[0]).states())
    for name, address in _addresses(paged, layout):
        yield name, lambda address=address: gives(output, _read(paged, seq, address))  # type: ignore[misc]


Address = Callable[[Sequence[int], int, int, int, int, int, int], int]
# (strides, block, slot in it, KV head, element, query head, index in the table) -> index in the cache


def _addresses(paged: Paged, layout: str) -> Iterator[tuple[str, Address]]:
    """Where each wrong thought about an index reads."""
    tokens = paged.tokens(0)
    if layout != LAYOUTS[0]:
        of_row = tokens.num_kv_heads * tokens.head_dim
        whole = (paged.block_size * of_row, of_row, tokens.head_dim, 1)
        yield "strides-made-up", lambda s, b, o, h, d, head, i: _sum(whole, b, o, h, d)
        yield "strides-made-up", lambda s, b, o, h, d, head, i: _sum((s[0], *whole[1:]), b, o, h, d)
        yield "strides-made-up", lambda s, b, o, h, d, head, i: _sum((*s[:3], 1), b, o, h, d)
    yield "heads-dealt-out", lambda s, b, o, h, d, head, i: _sum(s, b, o, head % tokens.group, d)
    yield "head-for-its-kv-head", lambda s, b, o, h, d, head, i: _sum(s, b, o, head, d)
    yield "logical-for-physical", lambda s, b, o, h, d, head, i: _sum(s, i, o, h, d)
    yield "number-not-multiplied", lambda s, b, o, h, d, head, i: b + _sum(s, 0, o, h, d)
    yield "slots-not-multiplied", lambda s, b, o, h, d, head, i: o + _sum(s, b, 0, h, d)
    yield "wrong-stride", lambda s, b, o, h, d, head, i: _sum((s[1], s[0], *s[2:]), b, o, h, d)
    yield "wrong-stride", lambda s, b, o, h, d, head, i: _sum((s[1], *s[1:]), b, o, h, d)
    yield "wrong-stride", lambda s, b, o, h, d, head, i: _sum((s[0], s[2], s[1], s[3]), b, o, h, d)


def _sum(strides: Sequence[int], *indices: int) -> int:
    return sum(stride * index for stride, index in zip(strides, indices, strict=True))


def _gives_padded(tokens: Tokens, unused: int, output: Any) -> bool:
    """Whether slots without a token count as tokens whose key and value are 0."""
    if not unused:
        return False
    nothing = [[[0.0] * tokens.head_dim] * tokens.num_kv_heads] * unused
    padded = Tokens(tokens.query, tokens.keys + nothing, tokens.values + nothing, tokens.scale, tokens.num_kv_heads)
    return gives(output, padded.states())


def _read(paged: Paged, seq: int, address: Address) -> list[State]:
    """The states of a kernel that reads at these addresses; NaN behind the end of a cache."""
    tokens = paged.tokens(seq)
    states = []
    memories = []
    for cache in paged.tensors[1:3]:
        extent = 1 + sum((size - 1) * stride for size, stride in zip(cache.shape, cache.stride(), strict=True))
        memories.append((cache.as_strided((extent,), (1,)).tolist(), cache.stride()))

    def number(memory: list[float], element: int) -> float:
        return memory[element] if 0 <= element < len(memory) else NAN

    for head in range(len(tokens.query)):
        kv_head = tokens.kv_head(head)
        found = []
        for memory, strides in memories:
            rows = []
            for t in range(paged.context_lens[seq]):
                index, offset = divmod(t, paged.block_size)
                block = paged.tables[seq][index]
                elements = (address(strides, block, offset, kv_head, d, head, index) for d in range(tokens.head_dim))
                rows.append([[number(memory, element) for element in elements]])
            found.append(rows)
        alone = Tokens([tokens.query[head]], found[0], found[1], paged.scale, 1)
        scores = alone.scores(0)
        states += alone.states() if finite(scores) else [State([NAN] * tokens.head_dim, NAN)]
    return states

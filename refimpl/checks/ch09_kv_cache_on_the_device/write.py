"""09-write: keys and values go into their slots.

A thought is a wrong way to write the same tokens into the account of the pool.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor

from refimpl.checks.ch09_kv_cache_on_the_device.slots import PAD, USUAL
from refimpl.checks.pools import (
    BESIDE,
    BLOCKS,
    DTYPES,
    FINER,
    HEADS,
    KEEPS,
    NOTHING_ELSE,
    STRIDED,
    TENSORS,
    PoolWorld,
    Sizes,
    State,
    Values,
    distinct_number,
    only_if,
    random_sizes,
    sized,
)
from refimpl.checks.step import History, Log, Operation, Setup, Step
from refimpl.checks.thoughts import Thought
from refimpl.device import kv_cache, plain_cache

KEYS = "the keys of a token stand in its slot"
VALUES = "the values of a token stand in its slot"
PADDING = "a token whose slot is -1 is written nowhere"
CONVERTED = "numbers take the dtype of the cache"


def _writes(setup: Setup, *slots: tuple[int, ...], converts: bool = False) -> History:
    """Writes to these slots."""
    return History.of(setup, *(("reshape_and_cache", some, converts) for some in slots))


@dataclass(frozen=True, slots=True)
class _Write:
    """What reshape_and_cache is asked."""

    states: dict[str, State]
    slots: tuple[int, ...]
    tokens: tuple[tuple[Values, ...], tuple[Values, ...]]  # keys, values
    sizes: Sizes
    viewable: bool  # whether a layer's cache can be seen as rows of slots without a copy
    strided: bool
    converts: bool

    @property
    def rows(self) -> list[tuple[int, int, int]]:
        """Slot -> block and offset, laid out one after the other, with the layer in front."""
        return [(0, block, offset) for block in range(self.sizes.num_blocks) for offset in range(self.sizes.block_size)]

    def written(
        self, at: Iterable[tuple[int, int, int]], sides: Iterable[tuple[int, int]] = ((0, 0), (1, 1))
    ) -> dict[str, State]:
        """The pool after tokens have been written at (token, block, offset), by (side of the pool, side of the token).

        Indices below 0 count from the end, as a tensor's do.
        """
        (name, before), sizes = *self.states.items(), self.sizes
        state, at = dict(before), list(at)
        for _, block, offset in at:
            if not (-sizes.num_blocks <= block < sizes.num_blocks and -sizes.block_size <= offset < sizes.block_size):
                raise IndexError
        for token, block, offset in at:
            for to, by in sides:
                state[0, to, block % sizes.num_blocks, offset % sizes.block_size] = self.tokens[by][token]
        return {name: state}

    def divided(self, by: int, slots: Iterable[tuple[int, int]] | None = None) -> list[tuple[int, int, int]]:
        """(token, block, offset) with `by` tokens a block, for (token, slot); all but padding when left out."""
        if slots is None:
            slots = self.real
        return [(token, slot // by, slot % by) for token, slot in slots]

    @property
    def real(self) -> list[tuple[int, int]]:
        """Token and slot of what is no padding."""
        return [(token, slot) for token, slot in enumerate(self.slots) if slot != PAD]

    def right(self) -> dict[str, State]:
        """What must stand in the pool afterwards, found by counting slots."""
        return self.written((token, *self.rows[slot][1:]) for token, slot in self.real)


def _can_view(indices: Tensor, axes: int) -> bool:
    """Whether the first `axes` axes can be seen as one without a copy."""
    with contextlib.suppress(RuntimeError):
        indices.view(-1, *indices.shape[axes:])
        return True
    return False


def _slot_for_a_block(case: _Write) -> dict[str, State]:
    """Each token alone: every offset of the block that has the slot's number."""
    size = case.sizes.block_size
    return case.written((token, slot, offset) for token, slot in case.real for offset in range(size))


def _slots_for_blocks(case: _Write) -> dict[str, State]:
    """All tokens at once: a tensor of tokens is spread over blocks, where their shapes allow it."""
    size, count = case.sizes.block_size, len(case.slots)
    if count not in (1, size):
        raise RuntimeError
    return case.written((offset if count == size else 0, slot, offset) for slot in case.slots for offset in range(size))


def _moved_up(case: _Write) -> dict[str, State]:
    return case.written(case.divided(case.sizes.block_size, enumerate(slot for _, slot in case.real)))


def _divided(slots: Callable[[_Write], Iterable[tuple[int, int]]]) -> Callable[[_Write], dict[str, State]]:
    """These tokens and slots, divided as they should be."""
    return lambda case: case.written(case.divided(case.sizes.block_size, slots(case)))


def _rounded(dtype: torch.dtype) -> Thought:
    """The thought that all numbers may go through this dtype."""

    def does(case: _Write) -> dict[str, State]:
        keys, values = (tuple(tuple(torch.tensor(row, dtype=dtype).tolist()) for row in side) for side in case.tokens)
        return dataclasses.replace(case, tokens=(keys, values)).right()

    return Thought("rounded-on-the-way", does)


def _with_size(size: Callable[[Sizes], int]) -> Thought:
    return Thought("another-axis", lambda case: case.written(case.divided(size(case.sizes))))


def _in_sides(name: str, *sides: tuple[int, int]) -> Thought:
    return Thought(name, lambda case: case.written(case.divided(case.sizes.block_size), sides))


WRITE_THOUGHTS = (
    Thought("not-in-place", lambda case: case.states),
    Thought("written-into-a-copy", lambda case: case.right() if case.viewable else case.states),
    Thought("viewed", only_if(RuntimeError, lambda case: not case.viewable)),
    Thought("not-converted", only_if(RuntimeError, lambda case: case.converts)),
    *map(_rounded, DTYPES[1:]),
    Thought("padding-written", _divided(lambda case: enumerate(case.slots))),
    Thought("padding-in-slot-zero", _divided(lambda case: [(i, max(slot, 0)) for i, slot in enumerate(case.slots)])),
    Thought("slot-zero-is-padding", _divided(lambda case: [(i, slot) for i, slot in case.real if slot])),
    Thought(
        "stops-at-padding",
        _divided(lambda case: itertools.takewhile(lambda pair: pair[1] != PAD, enumerate(case.slots))),
    ),
    Thought("tokens-move-up", _moved_up),
    Thought("tokens-move-up", only_if(RuntimeError, lambda case: PAD in case.slots)),
    Thought("first-token-only", _divided(lambda case: [(i, slot) for i, slot in case.real if i == 0])),
    Thought(
        "block-and-offset-swapped",
        lambda case: case.written((i, offset, block) for i, block, offset in case.divided(case.sizes.block_size)),
    ),
    Thought("slot-for-a-block", _slot_for_a_block),
    Thought("slot-for-a-block", _slots_for_blocks),
    _in_sides("keys-and-values-exchanged", (0, 1), (1, 0)),
    _in_sides("keys-in-both", (0, 0), (1, 0)),
    _in_sides("values-left-out", (0, 0)),
    _with_size(lambda sizes: sizes.num_blocks),
    _with_size(lambda sizes: sizes.num_kv_heads),
    _with_size(lambda sizes: sizes.head_dim),
    Thought("always-16", lambda case: case.written(case.divided(USUAL))),
)


WRITE_EXAMPLES = (
    _writes(sized(), (9, PAD, 2)),
    _writes(sized(), (5,)),
    _writes(sized(), (0, 7)),
    _writes(sized(), (3, 1)),
    _writes(sized(), (PAD, 13, 6)),
    _writes(sized(), (1, 11, 2, 4)),
    _writes(sized(), (22, 3, 17, 8, 12)),
    _writes(sized(layout=HEADS), (9, 2)),
    _writes(sized(layout=BESIDE), (9, 2)),
    _writes(sized(layout=BLOCKS), (9, PAD, 2)),
    _writes(sized(dtype=1), (9, 2)),
    _writes(sized(dtype=2), (9, 2), converts=True),
    _writes(sized(dtype=1), (PAD, 6), converts=True),
    _writes(sized(), (9, 2), converts=True),
    _writes(sized(num_kv_heads=1), (6, 3)),
    _writes(sized(), (9,), (), (PAD,), (9,), (10, PAD)),
)


class _WriteWorld(PoolWorld):
    """The caches of one layer, into which tokens are written."""

    thoughts, examples = WRITE_THOUGHTS, WRITE_EXAMPLES

    layers = False

    def __init__(self, subject: Any, setup: Setup, log: Log) -> None:
        super().__init__(subject, {**setup, "num_layers": 1}, log)
        self.make("key_cache, value_cache", setup["layout"])
        self.num_tokens = 0  # written so far

    def calls(self) -> Iterable[Operation]:
        num_slots = self.setup["num_blocks"] * self.setup["block_size"]
        for converts in (False, True):
            for number in range(10):
                slots = self.rng.sample(range(num_slots), self.rng.randint(1, min(num_slots, 5)))
                for _ in range(number % 3):
                    slots.insert(self.rng.randint(0, len(slots)), PAD)
                yield "reshape_and_cache", tuple(slots), converts
            yield from (("reshape_and_cache", slots, converts) for slots in ((0,), (num_slots - 1,), (PAD,), ()))

    def traits(self, case: _Write) -> frozenset[str]:
        """Padding among the slots, memory in another order, numbers of another dtype."""
        return frozenset(["padding"] * (PAD in case.slots) + ["strided"] * case.strided + ["dtype"] * case.converts)

    def possible(self, operation: Operation) -> bool:
        """What writes nothing comes only once something has been written."""
        _, slots, _ = operation
        fits = all(slot < self.setup["num_blocks"] * self.setup["block_size"] for slot in slots)
        return fits and (self.answered or any(slot != PAD for slot in slots))

    def _reshape_and_cache(self, slots: tuple[int, ...], converts: bool) -> None:
        ((name, pool),) = self.pools.items()
        sizes, tensor = pool.sizes, pool.tensor()
        dtype = pool.dtype if not converts else torch.bfloat16 if pool.dtype is torch.float32 else torch.float32
        both = self._tokens((len(slots), 2 * sizes.num_kv_heads, sizes.head_dim), dtype)
        key, value = both.chunk(2, dim=1)  # slices of one tensor, as a model's projection makes them
        key_before, value_before = key.clone(), value.clone()
        mapping = torch.tensor(slots, dtype=torch.int64)
        rows = [tuple(map(tuple, tokens.flatten(1).tolist())) for tokens in (key, value)]
        case = _Write(
            {name: pool.account},
            slots,
            (rows[0], rows[1]),
            sizes,
            _can_view(pool.indices[0, 0], 2),
            self.strided,
            converts,
        )
        told: dict[str, Any] = {
            "size": sizes.block_size,
            "last_block": sizes.num_blocks - 1,
            "last_offset": sizes.block_size - 1,
        }
        told |= {"num_blocks": sizes.num_blocks, "heads": sizes.num_kv_heads, "dtype": pool.dtype, "theirs": dtype}
        if case.real:
            _, block, offset = case.rows[case.real[0][1]]
            told |= {"slot": case.real[0][1], "block": block, "offset": offset}
        cast = f".to({dtype})" if converts else ""
        shown = ", ".join(f"{which}{cast}" for which in TENSORS)
        line = f"reshape_and_cache({shown}, key_cache, value_cache, torch.tensor({list(slots)}))"
        where = STRIDED if self.strided else CONVERTED if converts else ""
        shows = [where or KEYS, where or VALUES]
        self.call(shows, line, case, key, value, tensor[0, 0], tensor[0, 1], mapping, **told)
        pool.account = case.right()[name]
        places = [[(0, side, *case.rows[slot][1:]) for _, slot in case.real] for side in (0, 1)]
        moved = [(prop, name, at) for prop, at in zip(shows, places, strict=True) if case.real]
        tokens = {row: f"the keys of token {i}" for i, row in enumerate(rows[0])}
        tokens |= {row: f"the values of token {i}" for i, row in enumerate(rows[1])}
        self.compare(case, moved, PADDING if PAD in slots else NOTHING_ELSE, tokens, **told)
        given = ((key, key_before, "key"), (value, value_before, "value"))
        for now, then, which in (*given, (mapping, torch.tensor(slots, dtype=torch.int64), "slot_mapping")):
            self.log.hold(KEEPS, torch.equal(now, then), f"`{which}` should stay as it was", "it has changed")
        self.answered |= bool(case.real)

    def _tokens(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """New numbers that the cache can hold, too."""
        (pool,) = self.pools.values()
        both_hold = min(dtype, pool.dtype, key=FINER.__getitem__)
        numbers = [-distinct_number(self.num_tokens + i, both_hold) for i in range(prod(shape))]
        self.num_tokens += len(numbers)
        return torch.tensor(numbers, dtype=dtype).view(shape)


STEP = Step(
    exercise_id="09-write",
    title="write keys and values",
    points=3,
    subject="reshape_and_cache",
    reference=(plain_cache.reshape_and_cache, kv_cache.KVCache.write),
    properties=(KEYS, VALUES, PADDING, NOTHING_ELSE, STRIDED, CONVERTED, KEEPS),
    misconceptions={
        "not-in-place": "The caches that you are given are the memory that attention reads, so write into them: "
        "yours left them as they were, and nobody looks at what is returned.",
        "written-into-a-copy": "Where memory lies in another order, `reshape` makes a copy, and yours wrote into "
        "that: here the cache is unchanged; index the cache itself, by block and offset.",
        "viewed": "A cache can be a view in another order than its memory; `view` refuses that, and `reshape`, "
        "which torch suggests, would write into a copy: index the cache itself, by block and offset.",
        "not-converted": "Keys may come in another dtype than the cache's, here {theirs} for {dtype}, and an "
        "assignment by tensors of indices converts nothing: give it numbers of the cache's dtype.",
        "rounded-on-the-way": "The dtype is the cache's, here {dtype} and elsewhere another: yours took the "
        "numbers through one that holds fewer digits, and they came out rounded.",
        "padding-written": "A token of slot -1 is padding and goes nowhere: as an index -1 is the last one, and "
        "yours wrote to the pool's last slot, block {last_block}, offset {last_offset}.",
        "padding-in-slot-zero": "A token of slot -1 is padding and goes nowhere: yours put it into slot 0, which "
        "is block 0's and may be somebody's.",
        "slot-zero-is-padding": "Slot 0 is a slot, the first of block 0; padding is -1: yours did not write the "
        "token of slot 0.",
        "stops-at-padding": "Padding may stand anywhere among the tokens: leave out that token and go on, yours "
        "stopped there.",
        "tokens-move-up": "Token i belongs to slot i: whoever drops the padding's slots must drop its keys and "
        "values as well, or the tokens behind it take slots that are not theirs.",
        "first-token-only": "A prompt brings many tokens at once, each with a slot of its own: yours wrote the "
        "first of them.",
        "block-and-offset-swapped": "How many times {size} goes into the slot is the block, and what remains is "
        "the offset: slot {slot} is block {block}, offset {offset}, and yours has them the wrong way round.",
        "slot-for-a-block": "The cache's first axis counts blocks and not slots: slot {slot} is block {block}, "
        "offset {offset}, and yours used {slot} as the number of a block.",
        "keys-and-values-exchanged": "Keys go to the keys' cache and values to the values': yours has exchanged "
        "them, and attention would compare a query with values.",
        "keys-in-both": "Each cache has its own tensor to take from: yours wrote the keys into both.",
        "values-left-out": "A token has a key and a value, and both are kept: yours wrote the keys only.",
        "another-axis": "A cache is [num_blocks, block_size, num_kv_heads, head_dim]: the block size is {size}, "
        "on axis 1, and yours took another axis for it.",
        "always-16": "The block size is the cache's, here {size}: slot {slot} is block {block}, offset {offset}, "
        "and yours answered as if blocks always held 16.",
    },
    world=_WriteWorld,
    examples=WRITE_EXAMPLES,
    setups=random_sizes,
)

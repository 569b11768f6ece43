"""Chapter 09: how many blocks fit, where a token's keys and values go, and how blocks are copied and swapped.

The account is arithmetic over lists, and a dict for each pool: layer, keys or values, block and offset -> numbers. A
thought is a wrong way to do the same to the account. It is named when it alone explains everything that the learner's
code did, in the history at hand and in the step's examples (`thoughts.py`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import operator
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import prod
from numbers import Integral, Number
from typing import Any

import torch
from torch import Tensor

from refimpl.checks.pools import (
    BESIDE,
    BLOCKS,
    DTYPES,
    FINER,
    HEADS,
    LAYOUTS,
    ROWS,
    TENSORS,
    Place,
    PoolWorld,
    Sizes,
    State,
    Values,
    distinct_number,
)
from refimpl.checks.step import History, Log, Operation, Setup, Step, counted, equal, show
from refimpl.checks.thoughts import Thought, ThoughtWorld
from refimpl.device import kv_cache, memory, plain_cache

SHARE = "the cache has its share of all memory, less the model and a step"
WHOLE = "whole blocks are counted, with an int"
EXACT = "blocks that fit exactly are all counted"
LAST = "one block is enough"
NONE_FITS = "no room for a single block is refused with ValueError"
NEGATIVE = "a model that is larger than the share is refused with ValueError"

A_TENSOR = "returns a tensor with one slot for each position"
INT64 = "slots are int64, also where there are none"
SLOT = "a slot is found through the block table"
PADDING_STAYS = "padding stays padding"
NO_SLOT = "a position that has no slot is refused with ValueError"
KEEPS = "what is given to read stays as it was"

KEYS = "the keys of a token stand in its slot"
VALUES = "the values of a token stand in its slot"
PADDING = "a token whose slot is -1 is written nowhere"
STRIDED = "it works on views of memory in another order"
CONVERTED = "numbers take the dtype of the cache"
NOTHING_ELSE = "nothing else changes"

COPIED = "keys and values of every layer are copied"
AS_ONE = "all blocks are read before one is overwritten"
NO_PAIRS = "no pairs, no change"

SWAPPED = "keys and values of every layer are swapped"
BACK = "what comes back is what went out"

PAD = -1
USUAL = 16  # tokens a block, in the lessons


def _asked(verb: str, *calls: tuple[Any, ...]) -> History:
    """Calls with these arguments."""
    return History({}, tuple((verb, *arguments) for arguments in calls))


def _about(block_size: int, *calls: tuple[tuple[int, ...], tuple[int, ...]]) -> History:
    """Questions about tables and positions."""
    return History(
        {"block_size": block_size}, tuple(("slot_mapping", table, positions, "list") for table, positions in calls)
    )


def _sized(**sizes: int) -> Setup:
    """A pool in which no two sizes are the same."""
    usual = {"num_blocks": 6, "block_size": 4, "num_kv_heads": 2, "head_dim": 3, "num_layers": 2, "num_cpu_blocks": 5}
    return {**usual, "layout": ROWS, "dtype": 0, **sizes}


def _writes(setup: Setup, *slots: tuple[int, ...], converts: bool = False) -> History:
    """Writes to these slots."""
    return History(setup, tuple(("reshape_and_cache", some, converts) for some in slots))


def _copies(setup: Setup, *pairs: tuple[tuple[int, int], ...]) -> History:
    """Copies of these pairs."""
    return History(setup, tuple(("copy_blocks", some) for some in pairs))


def _swaps(setup: Setup, *swaps: tuple[Any, ...]) -> History:
    """Swaps of these pairs out of the pool that is named first."""
    other = {"gpu": "cpu", "cpu": "gpu"}
    return History(setup, tuple(("swap_blocks", name, other[name], tuple(pairs)) for name, *pairs in swaps))


# 09-num-blocks


@dataclass(frozen=True, slots=True)
class _Memory:
    """What num_gpu_blocks is asked."""

    total: int
    utilization: float
    model: int
    step: int
    block_bytes: int

    @property
    def share(self) -> Fraction:
        """Bytes that are ours, as the decimal number says that was written."""
        return Fraction(str(self.utilization)) * self.total

    @property
    def budget(self) -> Fraction:
        """Bytes for the cache."""
        return self.share - self.model - self.step

    def blocks(self, budget: Fraction | int) -> int:
        """Whole blocks in so many bytes."""
        return int(budget // self.block_bytes)


def _number(got: Any) -> Any:
    """The answer as something that can be compared with a thought's."""
    return int(got) if isinstance(got, Integral) else got


def _is_whole(got: Any, expected: int) -> bool:
    """Whether it is that number and can count: not 3.0, which `range` does not take."""
    return not isinstance(got, float) and equal(got, expected)


def _num_blocks_fault(got: Any, expected: int) -> str | None:
    """What the answer alone tells."""
    if got is None:
        return "nothing-returned"
    return "not-a-whole-number" if isinstance(got, float) and expected <= got < expected + 1 else None


def _with_bytes(name: str, budget: Callable[[_Memory], Fraction | int]) -> Thought:
    """The thought that the cache has these bytes, in whole blocks."""

    def blocks(case: _Memory) -> int:
        if budget(case) < case.block_bytes:
            raise ValueError
        return case.blocks(budget(case))

    return Thought(name, blocks)


def _share_of(case: _Memory, rest: int) -> Fraction:
    return Fraction(str(case.utilization)) * rest


NUM_BLOCKS_THOUGHTS = (
    _with_bytes("share-of-the-rest", lambda case: _share_of(case, case.total - case.model - case.step)),
    _with_bytes("share-of-the-rest", lambda case: _share_of(case, case.total - case.model) - case.step),
    _with_bytes("share-of-the-rest", lambda case: _share_of(case, case.total - case.step) - case.model),
    _with_bytes("whole-memory", lambda case: case.total - case.model - case.step),
    _with_bytes("model-forgotten", lambda case: case.share - case.step),
    _with_bytes("step-forgotten", lambda case: case.share - case.model),
    _with_bytes("both-forgotten", lambda case: case.share),
    Thought("rounded-up", lambda case: -int(-case.budget // case.block_bytes)),
    Thought("rounded-up", lambda case: round(case.budget / case.block_bytes)),
    Thought("bytes-for-blocks", lambda case: int(case.budget)),
    _with_bytes("values-counted-twice", lambda case: case.budget / 2),
    Thought("a-block-kept-back", lambda case: case.blocks(case.budget) - 1),
)


NUM_BLOCKS_EXAMPLES = (
    _asked("num_gpu_blocks", (1000, 0.9, 170, 50, 100)),
    _asked("num_gpu_blocks", (80 * 10**9, 0.9, 16_060_522_496, 2 * 10**9, 2_097_152)),
    _asked("num_gpu_blocks", (1000, 0.5, 200, 100, 100)),
    _asked("num_gpu_blocks", (1000, 0.75, 300, 260, 100)),
    _asked("num_gpu_blocks", (1000, 0.5, 300, 100, 100)),
    _asked("num_gpu_blocks", (1000, 1.0, 250, 180, 100)),
    _asked("num_gpu_blocks", (4096, 0.5, 1024, 900, 64)),
    _asked("num_gpu_blocks", (1000, 0.9, 170, 50, 100), (1000, 0.5, 350, 100, 100)),
    _asked("num_gpu_blocks", (1000, 0.9, 170, 50, 100), (1000, 0.5, 400, 100, 100)),
    _asked("num_gpu_blocks", (1000, 0.9, 170, 50, 100), (1000, 0.5, 800, 50, 100)),
)


@cache
def _memories() -> list[Operation]:
    """Devices with room for many blocks, few, one, none, and less than none; some budgets hold whole blocks."""
    found: list[Operation] = []
    for total, block in ((1000, 100), (4096, 64), (12_000, 700), (80 * 10**9, 2_097_152)):
        for utilization, model, blocks in itertools.product((0.5, 0.75, 1.0), (1, 3, 5), (-9, 0, 1, 2, 7, 40)):
            for more in (0, 1, block // 3, block - 1):
                step = int(total * utilization) - total * model // 20 - blocks * block - more
                if step > 0:
                    found.append(("num_gpu_blocks", total, utilization, total * model // 20, step, block))
        found.append(("num_gpu_blocks", total, 0.9, total * 2 // 5, total // 20 - block // 2, block))
    return found


@cache
def _fits(*numbers: Any) -> bool:
    """Whether there is room for a block."""
    case = _Memory(*numbers)
    return case.budget >= case.block_bytes


class _NumBlocksWorld(ThoughtWorld):
    """A function of five numbers; each operation is one call."""

    thoughts, examples = NUM_BLOCKS_THOUGHTS, NUM_BLOCKS_EXAMPLES

    def calls(self) -> Iterable[Operation]:
        return _memories()

    def possible(self, operation: Operation) -> bool:
        """Refusals only once something has been answered."""
        return self.answered or _fits(*operation[1:])

    def perform(self, operation: Operation) -> None:
        verb, *numbers = operation
        case = _Memory(*numbers)
        line = f"{verb}({', '.join(map(str, numbers))})"
        told: dict[str, Any] = {
            "total": case.total,
            "utilization": case.utilization,
            "share": int(case.share),
            "budget": int(case.budget),
            "model": case.model,
            "step": case.step,
            "block": case.block_bytes,
        }
        if case.budget < case.block_bytes:
            self._refuse(line, case, told)
            return
        expected = case.blocks(case.budget)
        told["blocks"] = counted(expected, "block")
        got = self.call([SHARE], line, case, *numbers, **told)
        self.seen.append((case, ("did", _number(got))))
        thought = None
        if not _is_whole(got, expected):
            thought = _num_blocks_fault(got, expected) or self.thought()
        should, but = f"the result should be {expected}", f"it is {show(got)}"
        told["got"] = show(got)
        near = isinstance(got, Number) and not isinstance(got, complex) and abs(got - expected) <= 1  # type: ignore[operator]
        self.log.hold(SHARE, bool(near), should, but, thought, **told)
        for name in (WHOLE, *[EXACT] * (case.budget % case.block_bytes == 0), *[LAST] * (expected == 1)):
            self.log.hold(name, _is_whole(got, expected), should, but, thought, **told)
        self.answered = True

    def _refuse(self, line: str, case: _Memory, told: dict[str, Any]) -> None:
        name = NEGATIVE if case.budget < 0 else NONE_FITS
        numbers = dataclasses.astuple(case)
        self.refuse(name, line, *numbers, returned="nothing-fits-answered", other_error="other-error", **told)


# 09-slot-mapping


@dataclass(frozen=True, slots=True)
class _Mapping:
    """What slot_mapping is asked."""

    block_table: tuple[int, ...]
    positions: tuple[int, ...]
    block_size: int

    @property
    def places(self) -> list[tuple[int, int]]:
        """Position -> block number and offset, for every token that the table has room for."""
        return [(block, offset) for block in self.block_table for offset in range(self.block_size)]

    @property
    def slots(self) -> list[int]:
        """What slot_mapping must answer."""
        return self.look_up(lambda block, offset, _: block * self.block_size + offset)

    def look_up(self, number: Callable[[int, int, int], int]) -> list[int]:
        """A number for each position, from its block's number, its offset and the position; padding stays."""
        places = self.places
        return [number(*places[position], position) if position != PAD else PAD for position in self.positions]


def _listed(got: Any) -> Any:
    """The slots as a list of numbers; what is no such list stays what it is."""
    try:
        found = got.tolist() if hasattr(got, "tolist") else list(got)
        return [operator.index(slot) if not isinstance(slot, float) else slot for slot in found]
    except Exception:  # noqa: BLE001  (a learner's strange object may raise anything)
        return None


def _shown(got: Any) -> str:
    """A tensor as its numbers."""
    listed = _listed(got)
    return show(got) if listed is None or not isinstance(got, Tensor) else show(listed)


def _always_16(case: _Mapping) -> list[int]:
    table = case.block_table
    return [
        table[position // USUAL] * USUAL + position % USUAL if position != PAD else PAD for position in case.positions
    ]


def _swapped(case: _Mapping) -> list[int]:
    table, size = case.block_table, case.block_size
    return [table[position % size] * size + position // size if position != PAD else PAD for position in case.positions]


def _padding_looked_up(case: _Mapping) -> list[int]:
    table, size = case.block_table, case.block_size
    return [table[position // size] * size + position % size for position in case.positions]


def _padding_refused(case: _Mapping) -> list[int]:
    if PAD in case.positions:
        raise ValueError
    return case.slots


def _runs_on(case: _Mapping) -> list[int]:
    first = next((position for position in case.positions if position != PAD), PAD)
    start = case.places[first] if first != PAD else (0, 0)
    return case.look_up(lambda _b, _o, position: start[0] * case.block_size + start[1] + position - first)


def _in_32_bits(case: _Mapping) -> list[int]:
    return [(slot + 2**31) % 2**32 - 2**31 for slot in case.slots]


MAPPING_THOUGHTS = (
    Thought("position-for-a-slot", lambda case: list(case.positions)),
    Thought("block-for-a-slot", lambda case: case.look_up(lambda block, offset, position: block)),
    Thought("offset-left-out", lambda case: case.look_up(lambda block, offset, position: block * case.block_size)),
    Thought(
        "position-instead-of-offset",
        lambda case: case.look_up(lambda block, offset, position: block * case.block_size + position),
    ),
    Thought("added-without-multiplying", lambda case: case.look_up(lambda block, offset, position: block + offset)),
    Thought(
        "counted-from-1",
        lambda case: case.look_up(lambda block, offset, position: block * case.block_size + offset + 1),
    ),
    Thought("division-and-remainder-swapped", _swapped),
    Thought("always-16", _always_16),
    Thought("padding-looked-up", _padding_looked_up),
    Thought("padding-refused", _padding_refused),
    Thought(
        "padding-left-out",
        lambda case: [slot for slot in case.slots if slot != PAD],
    ),
    Thought(
        "padding-is-slot-zero",
        lambda case: [max(slot, 0) for slot in case.slots],
    ),
    Thought("runs-on-in-memory", _runs_on),
    Thought("wraps-at-32-bits", _in_32_bits),
)


MAPPING_EXAMPLES = (
    _about(4, ((5, 2), (0, 3, 4, PAD))),
    _about(16, ((7, 9, 5), (20,))),
    _about(16, ((7, 9, 5), (15, 16, 34))),
    _about(16, ((7, 9, 5), (34, 0, PAD, 20))),
    _about(16, ((7, 9, 5), (PAD, 5))),
    _about(4, ((6, 1, 3), (9, 2))),
    _about(1, ((3, 0), (1, 0))),
    _about(16, ((150_000_000, 3), (5, 20))),
    _about(4, ((5, 2), (6,)), ((5, 2), ())),
    _about(4, ((5, 2), (6,)), ((5, 2), (PAD, PAD))),
    _about(4, ((5, 2), (6,)), ((), (PAD,))),
    _about(4, ((5, 2), (6,)), ((5, 2), (8,))),
    _about(4, ((5, 2), (6,)), ((5, 2), (3, 12))),
    _about(4, ((5, 2), (6,)), ((5, 2), (-2,))),
    _about(4, ((5, 2), (6,)), ((5, 2), (1, -5))),
)


class _MappingWorld(ThoughtWorld):
    """A function of a table, positions and a block size; each operation is one call."""

    thoughts, examples = MAPPING_THOUGHTS, MAPPING_EXAMPLES

    def calls(self) -> Iterable[Operation]:
        size = self.setup["block_size"]
        for table in ((5, 2), (7,), (0, 3, 1), (9, 12, 4, 8, 0), (150_000_000, 3)):
            room = len(table) * size
            edges = sorted({edge + more for edge in range(0, room + 1, size) for more in (-1, 0, 1)} & {*range(room)})
            lists = [tuple(edges), (*edges[::-1], PAD), (PAD, *edges[1::2], PAD, *edges[::2]), (edges[-1],) * 2]
            yield from (("slot_mapping", table, positions, "list") for positions in lists)
            yield "slot_mapping", table, tuple(range(room // 2, room)), "range"
            yield from (("slot_mapping", table, positions, "list") for positions in ((), (PAD,), (PAD, PAD)))
            for bad in (-2, -size - 1, room, room + size):
                yield "slot_mapping", table, (edges[-1], bad), "list"
        yield from (("slot_mapping", (), positions, "list") for positions in ((), (PAD,), (0,)))

    def traits(self, case: _Mapping) -> frozenset[str]:
        """Padding among the positions, or numbers that 32 bits do not hold."""
        large = max(case.block_table, default=0) * case.block_size >= 2**31
        return frozenset(["padding"] * (PAD in case.positions) + ["large"] * large)

    def possible(self, operation: Operation) -> bool:
        """What holds no token, or has no slot, only once something has been answered."""
        _, table, positions, _ = operation
        tokens = [position for position in positions if position != PAD]
        return self.answered or (tokens != [] and self._bad(table, positions) is None)

    def _bad(self, table: tuple[int, ...], positions: tuple[int, ...]) -> int | None:
        room = len(table) * self.setup["block_size"]
        return next((position for position in positions if not PAD <= position < room), None)

    def perform(self, operation: Operation) -> None:
        verb, table, positions, how = operation
        size = self.setup["block_size"]
        case = _Mapping(table, positions, size)
        given = list(positions) if how == "list" else range(positions[0], positions[-1] + 1)
        line = f"{verb}({list(table)}, {given}, {size})"
        bad = self._bad(table, positions)
        blocks, room = counted(len(table), "block"), len(table) * size
        told = {"blocks": blocks, "room": counted(room, "token"), "size": size, "bad": bad}
        told["tokens"] = counted(len(positions), "position")
        if bad is not None:
            accepted = "behind-the-table-answered" if bad >= 0 else "below-padding-answered"
            asked = (list(table), given, size)
            self.refuse(NO_SLOT, line, *asked, returned=accepted, other_error="other-error", **told)
            return
        block_table = list(table)
        got = self.call([SLOT], line, case, block_table, given, size, **told)
        self.seen.append((case, ("did", _listed(got))))
        self._compare(case, got, told)
        self.log.expect(KEEPS, "the block table", block_table, list(table))
        self.log.expect(KEEPS, "the positions", list(given), list(positions))
        self.answered |= any(position != PAD for position in positions)

    def _compare(self, case: _Mapping, got: Any, told: dict[str, Any]) -> None:
        wanted = case.slots
        listed = _listed(got)
        right = listed == wanted
        differs = next((i for i, pair in enumerate(zip(listed or (), wanted, strict=False)) if pair[0] != pair[1]), 0)
        if case.positions and case.positions[differs] != PAD:
            block, offset = case.places[case.positions[differs]]
            told |= {"number": block, "offset": offset, "position": case.positions[differs], "slot": wanted[differs]}
            told["yours"] = show(listed[differs]) if listed and differs < len(listed) else "none"
        told |= {"got": _shown(got), "last_slot": self._last_slot(case)}
        should, but = f"the slots should be {show(wanted)}", f"they are {_shown(got)}"
        is_tensor = isinstance(got, Tensor)
        fault = None if is_tensor and right else self.thought()
        if not is_tensor:
            fault = "nothing-returned" if got is None else "list-for-a-tensor" if right else fault
        tokens = [i for i, position in enumerate(case.positions) if position != PAD]
        one_each = listed is not None and len(listed) == len(wanted)
        if tokens:
            found = one_each and all(listed[i] == wanted[i] for i in tokens)
            self.log.hold(SLOT, found, should, but, fault, **told)
        if len(tokens) < len(wanted):
            self.log.hold(PADDING_STAYS, right, should, but, fault, **told)
        if listed is not None and not is_tensor:
            but = "they are no tensor"
        self.log.hold(A_TENSOR, is_tensor and list(got.shape) == [len(wanted)], should, but, fault, **told)
        told["dtype"] = got.dtype
        narrow = "not-int64" if wanted else "empty-is-not-int64"
        is_int64 = got.dtype is torch.int64
        self.log.hold(INT64, is_int64, "its dtype should be torch.int64", f"it is {got.dtype}", narrow, **told)

    @staticmethod
    def _last_slot(case: _Mapping) -> int | None:
        return (case.block_table[-1] + 1) * case.block_size - 1 if case.block_table else None


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


def _only_if(error: type[Exception], fails: Callable[[Any], bool]) -> Callable[[Any], dict[str, State]]:
    """Right, but for cases that end in an error."""

    def does(case: Any) -> dict[str, State]:
        if fails(case):
            raise error
        right: dict[str, State] = case.right()
        return right

    return does


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
    Thought("viewed", _only_if(RuntimeError, lambda case: not case.viewable)),
    Thought("not-converted", _only_if(RuntimeError, lambda case: case.converts)),
    *map(_rounded, DTYPES[1:]),
    Thought("padding-written", _divided(lambda case: enumerate(case.slots))),
    Thought("padding-in-slot-zero", _divided(lambda case: [(i, max(slot, 0)) for i, slot in enumerate(case.slots)])),
    Thought("slot-zero-is-padding", _divided(lambda case: [(i, slot) for i, slot in case.real if slot])),
    Thought(
        "stops-at-padding",
        _divided(lambda case: itertools.takewhile(lambda pair: pair[1] != PAD, enumerate(case.slots))),
    ),
    Thought("tokens-move-up", _moved_up),
    Thought("tokens-move-up", _only_if(RuntimeError, lambda case: PAD in case.slots)),
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
    _writes(_sized(), (9, PAD, 2)),
    _writes(_sized(), (5,)),
    _writes(_sized(), (0, 7)),
    _writes(_sized(), (3, 1)),
    _writes(_sized(), (PAD, 13, 6)),
    _writes(_sized(), (1, 11, 2, 4)),
    _writes(_sized(), (22, 3, 17, 8, 12)),
    _writes(_sized(layout=HEADS), (9, 2)),
    _writes(_sized(layout=BESIDE), (9, 2)),
    _writes(_sized(layout=BLOCKS), (9, PAD, 2)),
    _writes(_sized(dtype=1), (9, 2)),
    _writes(_sized(dtype=2), (9, 2), converts=True),
    _writes(_sized(dtype=1), (PAD, 6), converts=True),
    _writes(_sized(), (9, 2), converts=True),
    _writes(_sized(num_kv_heads=1), (6, 3)),
    _writes(_sized(), (9,), (), (PAD,), (9,), (10, PAD)),
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

    def perform(self, operation: Operation) -> None:
        verb, slots, converts = operation
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
        line = f"{verb}({shown}, key_cache, value_cache, torch.tensor({list(slots)}))"
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


@dataclass(frozen=True, slots=True)
class _Move:
    """What copy_blocks or swap_blocks is asked: blocks that go from one pool to the other, or stay in one."""

    states: dict[str, State]
    source: str
    destination: str
    pairs: tuple[tuple[int, int], ...]
    sizes: dict[str, Sizes]
    indices: dict[str, Tensor]
    strided: bool

    def moved(self, *moves: tuple[str, Place, str, Place]) -> dict[str, State]:
        """The pools after numbers have been moved, one after the other: from a pool and place to another."""
        states = {name: dict(state) for name, state in self.states.items()}
        for source, by, destination, to in moves:
            if by not in states[source] or to not in states[destination]:
                raise IndexError
            states[destination][to] = states[source][by]
        return states

    def places(self, layers: bool = True, sides: bool = True) -> Iterator[tuple[int, int, int]]:
        """Layer, side and offset of all that moves with a block; or of the first layer, or the keys, alone."""
        sizes = self.sizes[self.source]
        for layer, side, offset in itertools.product(range(sizes.num_layers), range(2), range(sizes.block_size)):
            if (layers or layer == 0) and (sides or side == 0):
                yield layer, side, offset

    def one_after_the_other(
        self,
        pairs: Iterable[tuple[int, int]],
        *,
        source: str = "",
        destination: str = "",
        layers: bool = True,
        sides: bool = True,
    ) -> dict[str, State]:
        """These pairs, each read after those before it have been written."""
        by, to = source or self.source, destination or self.destination
        return self.moved(
            *(
                (by, (layer, side, first, offset), to, (layer, side, second, offset))
                for first, second in pairs
                for layer, side, offset in self.places(layers, sides)
            )
        )

    def at_once(self, pairs: Iterable[tuple[int, int]], **which: Any) -> dict[str, State]:
        """These pairs, all read before one is written."""
        pairs = list(pairs)
        states = {name: dict(state) for name, state in self.states.items()}
        for pair in pairs:
            after = self.one_after_the_other([pair], **which)
            for name, state in after.items():
                states[name] |= {place: state[place] for place in state if state[place] != self.states[name][place]}
        return states

    def right(self) -> dict[str, State]:
        """What must stand in the pools afterwards."""
        return self.at_once(self.pairs)

    def zeroed(self, states: dict[str, State]) -> dict[str, State]:
        """The same with nothing left in the blocks that were read, unless they were written too."""
        state = dict(states[self.source])
        kept = {second for _, second in self.pairs} if self.source == self.destination else set()
        for first in {first for first, _ in self.pairs} - kept:
            for layer, side, offset in self.places():
                place = (layer, side, first, offset)
                state[place] = (0.0,) * len(state[place])
        return {**states, self.source: state}


def _exchanged(case: _Move) -> dict[str, State]:
    """Each pair changes places, one pair after the other."""
    states = {name: dict(state) for name, state in case.states.items()}
    for first, second in case.pairs:
        for layer, side, offset in case.places():
            by, to = (layer, side, first, offset), (layer, side, second, offset)
            one, other = states[case.source], states[case.destination]
            one[by], other[to] = other[to], one[by]
    return states


def _another_axis(axis: int) -> Callable[[_Move], dict[str, State]]:
    """Layers, or keys and values, are copied by the numbers of the blocks, one pair after the other."""

    def does(case: _Move) -> dict[str, State]:
        size = (case.sizes[case.source].num_layers, 2)[axis]
        states = {name: dict(state) for name, state in case.states.items()}
        for first, second in case.pairs:
            if max(first, second) >= size:
                raise IndexError
            one, other = states[case.source], states[case.destination]
            for place in [place for place in other if place[axis] == second]:
                layer, side, block, offset = place
                other[place] = one[(first, side, block, offset) if axis == 0 else (layer, first, block, offset)]
        return states

    return does


def _into_a_copy(*shape: str) -> Thought:
    """Right where the pool can be seen in this shape without a copy, and nothing at all where it cannot."""

    def does(case: _Move) -> dict[str, State]:
        return case.right() if _sees(case.indices[case.destination], shape) else case.states

    return Thought("written-into-a-copy", does)


def _viewed(*shape: str) -> Thought:
    """Right where the pool can be seen in this shape without a copy, and an error where it cannot."""
    return Thought("viewed", _only_if(RuntimeError, lambda case: not _sees(case.indices[case.destination], shape)))


def _sees(indices: Tensor, shape: tuple[str, ...]) -> bool:
    """Whether the pool can be viewed with these axes, "2NB" for three in one."""
    axes = dict(zip("L2NBHD", indices.shape, strict=True))
    with contextlib.suppress(RuntimeError):
        indices.view([prod(axes[letter] for letter in letters) for letters in shape])
        return True
    return False


FLAT_SHAPES = (("L", "2", "N", "BHD"), ("L2", "N", "BHD"), ("L2", "N", "B", "H", "D"), ("L2NBHD",))
MOVE_THOUGHTS = (
    Thought("not-in-place", lambda case: case.states),
    *(_into_a_copy(*shape) for shape in FLAT_SHAPES),
    *(_viewed(*shape) for shape in FLAT_SHAPES),
    Thought("first-layer-only", lambda case: case.at_once(case.pairs, layers=False)),
    Thought("values-left-out", lambda case: case.at_once(case.pairs, sides=False)),
    Thought("first-pair-only", lambda case: case.at_once(case.pairs[:1])),
    Thought("blocks-exchanged", _exchanged),
    Thought("source-cleared", lambda case: case.zeroed(case.right())),
)
COPY_THOUGHTS = (
    *MOVE_THOUGHTS,
    Thought("read-after-write", lambda case: case.one_after_the_other(case.pairs)),
    Thought("read-after-write", lambda case: case.one_after_the_other(reversed(case.pairs))),
    Thought("pair-turned-round", lambda case: case.at_once((second, first) for first, second in case.pairs)),
    Thought("pair-turned-round", lambda case: case.one_after_the_other((b, a) for a, b in case.pairs)),
    Thought("another-axis", _another_axis(0)),
    Thought("another-axis", _another_axis(1)),
    Thought("no-pairs-refused", _only_if(ValueError, lambda case: not case.pairs)),
    Thought("no-pairs-refused", _only_if(IndexError, lambda case: not case.pairs)),
)
SWAP_THOUGHTS = (
    *MOVE_THOUGHTS,
    Thought(
        "pools-exchanged",
        lambda case: case.one_after_the_other(
            ((second, first) for first, second in case.pairs), source=case.destination, destination=case.source
        ),
    ),
    Thought("pair-turned-round", lambda case: case.one_after_the_other((b, a) for a, b in case.pairs)),
    Thought("same-number", lambda case: case.one_after_the_other((a, a) for a, _ in case.pairs)),
    Thought("within-one-pool", lambda case: case.one_after_the_other(case.pairs, destination=case.source)),
    Thought("within-one-pool", lambda case: case.one_after_the_other(case.pairs, source=case.destination)),
    Thought("no-pairs-refused", _only_if(ValueError, lambda case: not case.pairs)),
    Thought("no-pairs-refused", _only_if(IndexError, lambda case: not case.pairs)),
)


COPY_EXAMPLES = (
    _copies(_sized(), ((3, 1), (0, 2))),
    _copies(_sized(), ((1, 4),)),
    _copies(_sized(), ((0, 1),)),
    _copies(_sized(), ((0, 1), (1, 2))),
    _copies(_sized(), ((0, 1), (1, 0))),
    _copies(_sized(), ((4, 5), (3, 4))),
    _copies(_sized(), ((2, 0), (2, 5))),
    _copies(_sized(layout=HEADS), ((3, 1), (0, 2))),
    _copies(_sized(layout=BESIDE), ((3, 1), (0, 2))),
    _copies(_sized(layout=BLOCKS), ((3, 1), (0, 2))),
    _copies(_sized(num_layers=1, layout=HEADS), ((3, 1),)),
    _copies(_sized(dtype=1), ((3, 1),)),
    _copies(_sized(dtype=2, layout=HEADS), ((3, 1), (1, 4))),
    _copies(_sized(), ((3, 1),), (), ((1, 5),)),
)
SWAP_EXAMPLES = (
    _swaps(_sized(), ("gpu", (4, 0), (2, 3))),
    _swaps(_sized(), ("gpu", (1, 2))),
    _swaps(_sized(), ("gpu", (0, 1), (3, 0))),
    _swaps(_sized(num_cpu_blocks=8), ("gpu", (2, 7))),
    _swaps(_sized(), ("gpu", (2, 0), (2, 3))),
    _swaps(_sized(), ("gpu", (4, 0), (2, 3)), ("cpu", (0, 1), (3, 5))),
    _swaps(_sized(), ("gpu", (0, 0), (1, 1)), ("cpu", (1, 0), (0, 1))),
    _swaps(_sized(layout=HEADS), ("gpu", (4, 0), (2, 3))),
    _swaps(_sized(layout=BESIDE), ("gpu", (4, 0), (2, 3))),
    _swaps(_sized(num_layers=1, layout=HEADS), ("gpu", (3, 1))),
    _swaps(_sized(dtype=2), ("gpu", (4, 1))),
    _swaps(_sized(), ("gpu", (4, 0)), ("gpu",), ("cpu",)),
)


class _MoveWorld(PoolWorld):
    """What copying and swapping have in common: pairs of blocks."""

    def _draw(self, num_sources: int, num_destinations: int) -> Iterator[tuple[tuple[int, int], ...]]:
        """Some lists of pairs, no destination twice."""
        for _ in range(12):
            count = self.rng.randint(1, min(num_destinations, 4))
            yield tuple(
                (self.rng.randrange(num_sources), second) for second in self.rng.sample(range(num_destinations), count)
            )
        yield ()

    def move(self, line: str, case: _Move, moved: str, rest: str, *tensors: Tensor) -> None:
        """Call the learner's function with the tensors and the pairs, and compare."""
        pairs = list(case.pairs)
        told: dict[str, Any] = {"layers": counted(self.setup["num_layers"], "layer")}
        if pairs:
            told |= {"first": pairs[0][0], "second": pairs[0][1], "pairs": counted(len(pairs), "pair")}
        overwritten = [first for first, _ in pairs if first in {second for _, second in pairs}]
        told["overwritten"] = overwritten[0] if overwritten else None
        self.call([moved] if pairs else [rest], line, case, *tensors, pairs, **told)
        right = case.right()
        for name, pool in self.pools.items():
            pool.account = right[name]
        destination = self.pools[case.destination]
        places = destination.sizes.places([second for _, second in case.pairs])
        self.compare(case, [(moved, case.destination, places)] if pairs else [], rest, {}, **told)
        self.log.hold(KEEPS, pairs == [*case.pairs], "`pairs` should stay as they were", f"they are {show(pairs)}")
        self.answered |= bool(pairs)

    def case(self, source: str, destination: str, pairs: tuple[tuple[int, int], ...]) -> _Move:
        """What is asked, with the pools as they are."""
        return _Move(
            {name: pool.account for name, pool in self.pools.items()},
            source,
            destination,
            pairs,
            {name: pool.sizes for name, pool in self.pools.items()},
            {name: pool.indices for name, pool in self.pools.items()},
            self.strided,
        )


class _CopyWorld(_MoveWorld):
    """One pool, in which blocks are copied."""

    thoughts, examples = COPY_THOUGHTS, COPY_EXAMPLES

    def __init__(self, subject: Any, setup: Setup, log: Log) -> None:
        super().__init__(subject, setup, log)
        self.make("kv_cache", setup["layout"])

    def calls(self) -> Iterable[Operation]:
        num_blocks = self.setup["num_blocks"]
        for pairs in self._draw(num_blocks, num_blocks):
            others = tuple(pair for pair in pairs if pair[0] != pair[1])
            if others or not pairs:
                yield "copy_blocks", others
        if num_blocks > 2:
            a, b, c = self.rng.sample(range(num_blocks), 3)
            yield from (("copy_blocks", pairs) for pairs in (((a, b), (b, c)), ((a, b), (b, a)), ((b, c), (a, b))))

    def traits(self, case: _Move) -> frozenset[str]:
        """Memory in another order, blocks that are read and written, no pairs."""
        chained = bool({first for first, _ in case.pairs} & {second for _, second in case.pairs})
        return frozenset(["strided"] * case.strided + ["chained"] * chained + ["none"] * (not case.pairs))

    def possible(self, operation: Operation) -> bool:
        """No pairs, only once something has been copied."""
        _, pairs = operation
        return all(block < self.setup["num_blocks"] for pair in pairs for block in pair) and (
            self.answered or bool(pairs)
        )

    def perform(self, operation: Operation) -> None:
        verb, pairs = operation
        case = self.case("kv_cache", "kv_cache", pairs)
        chained = {first for first, _ in pairs} & {second for _, second in pairs}
        moved = AS_ONE if chained else STRIDED if self.strided else COPIED
        rest = NOTHING_ELSE if pairs else NO_PAIRS
        self.move(f"{verb}(kv_cache, {list(pairs)})", case, moved, rest, self.pools["kv_cache"].tensor())


class _SwapWorld(_MoveWorld):
    """Two pools of different sizes; blocks go out and come back."""

    thoughts, examples = SWAP_THOUGHTS, SWAP_EXAMPLES

    def __init__(self, subject: Any, setup: Setup, log: Log) -> None:
        super().__init__(subject, setup, log)
        self.make("gpu", setup["layout"])
        self.make("cpu", BLOCKS if self.strided else ROWS, num_blocks=setup["num_cpu_blocks"])

    def _num_blocks(self, name: str) -> int:
        return self.setup["num_blocks" if name == "gpu" else "num_cpu_blocks"]

    def calls(self) -> Iterable[Operation]:
        for source, destination in (("gpu", "cpu"), ("cpu", "gpu")):
            for pairs in self._draw(self._num_blocks(source), self._num_blocks(destination)):
                yield "swap_blocks", source, destination, pairs

    def traits(self, case: _Move) -> frozenset[str]:
        """Memory in another order, no pairs."""
        return frozenset(["strided"] * case.strided + ["none"] * (not case.pairs))

    def possible(self, operation: Operation) -> bool:
        """What comes back, and no pairs, only once something has gone out."""
        _, source, destination, pairs = operation
        fits = all(a < self._num_blocks(source) and b < self._num_blocks(destination) for a, b in pairs)
        return fits and (self.answered or (source == "gpu" and bool(pairs)))

    def perform(self, operation: Operation) -> None:
        verb, source, destination, pairs = operation
        case = self.case(source, destination, pairs)
        moved = BACK if source == "cpu" else STRIDED if self.strided else SWAPPED
        tensors = (self.pools[source].tensor(), self.pools[destination].tensor())
        line = f"{verb}({source}, {destination}, {list(pairs)})"
        self.move(line, case, moved, NOTHING_ELSE if pairs else NO_PAIRS, *tensors)


def _no_sizes(rng: random.Random) -> Setup:
    return {}


def _block_sizes(rng: random.Random) -> Setup:
    return {"block_size": rng.choice((1, 2, 3, 4, 8, USUAL, 32))}


def _pool_sizes(rng: random.Random) -> Setup:
    return {
        "num_blocks": rng.randint(2, 6),
        "block_size": rng.choice((1, 2, 3, 4)),
        "num_kv_heads": rng.randint(1, 3),
        "head_dim": rng.randint(1, 4),
        "num_layers": rng.randint(1, 3),
        "num_cpu_blocks": rng.randint(2, 6),
        "layout": rng.randrange(len(LAYOUTS)),
        "dtype": rng.randrange(3),
    }


STEPS = (
    Step(
        exercise_id="09-num-blocks",
        title="how many blocks fit",
        points=2,
        subject="num_gpu_blocks",
        reference=(plain_cache.num_gpu_blocks, memory.num_gpu_blocks),
        properties=(SHARE, WHOLE, EXACT, LAST, NONE_FITS, NEGATIVE),
        misconceptions={
            "nothing-returned": "Whoever makes the pool needs the number of its blocks: yours returned None.",
            "share-of-the-rest": "The share is one of all memory, whatever lies in it: {utilization} of {total} bytes "
            "are {share}, and only from those go the model's {model} and the step's {step}.",
            "whole-memory": "Only a share of the memory is ours: of {total} bytes {utilization}, which is {share}, "
            "and yours used all of it.",
            "model-forgotten": "The model lies in the same memory: of our {share} bytes it takes {model}, and yours "
            "gave them to the cache as well.",
            "step-forgotten": "While a step runs it needs memory of its own: {step} bytes that the cache must leave "
            "free, or the first large step runs out of memory.",
            "both-forgotten": "What is ours is not all the cache's: of {share} bytes the model takes {model} and a "
            "step {step}, and the cache gets the other {budget}.",
            "rounded-up": "A block that does not fit whole does not fit: {budget} bytes hold {blocks} of {block}, and "
            "yours said {got}.",
            "bytes-for-blocks": "The block manager counts blocks and not bytes: {budget} bytes are {blocks} of "
            "{block}, and yours returned {got}.",
            "values-counted-twice": "A block's bytes are those of its keys and its values, in all layers: {budget} "
            "bytes hold {blocks} of {block}, and yours, {got}, counts them once more.",
            "a-block-kept-back": "What fits is the pool, and keeping some of it back is the watermark's work: "
            "{budget} bytes hold {blocks} of {block}, and yours said {got}.",
            "not-a-whole-number": "Blocks are counted with an int, which `range` takes: {budget} bytes hold {blocks}, "
            "and yours returned {got}.",
            "nothing-fits-answered": "A pool without a block can serve nobody: {budget} bytes are left and a block "
            "takes {block}, so raise ValueError, while somebody can still change the numbers.",
            "other-error": "The error for a pool without a block is ValueError, raised on purpose, since that is what "
            "a caller waits for: yours ended in {error}.",
        },
        world=_NumBlocksWorld,
        examples=NUM_BLOCKS_EXAMPLES,
        setups=_no_sizes,
    ),
    Step(
        exercise_id="09-slot-mapping",
        title="where tokens are written",
        points=2,
        subject="slot_mapping",
        reference=(plain_cache.slot_mapping, kv_cache.slot_mapping),
        properties=(A_TENSOR, INT64, SLOT, PADDING_STAYS, NO_SLOT, KEEPS),
        misconceptions={
            "nothing-returned": "The slots are what the write is told: yours returned None.",
            "list-for-a-tensor": "The slots go to the device, so they are a tensor: yours are right, and returned as "
            "{got}.",
            "not-int64": "A slot counts all tokens of a pool, and a tensor's indices are int64: yours is {dtype}.",
            "empty-is-not-int64": "A tensor made of no numbers has no whole ones to go by, and torch makes it "
            "{dtype}: say the dtype, since a step may have no token of a sequence to write.",
            "position-for-a-slot": "A position counts along the text and a slot along the memory: position {position} "
            "is offset {offset} of block {number}, which is slot {slot}, and yours is {yours}.",
            "block-for-a-slot": "A block has room for {size} tokens, so its number alone is no slot: position "
            "{position} is offset {offset} of block {number}, slot {slot}, and yours is {yours}.",
            "offset-left-out": "A block's first slot is its number times {size}, and a token lies its offset further "
            "on: position {position} is slot {slot}, and yours is {yours}.",
            "position-instead-of-offset": "The table has counted the whole blocks already: add the offset {offset} to "
            "the first slot of block {number}, and not the position {position}.",
            "added-without-multiplying": "Before block {number} lie {number} others of {size} slots each, so multiply "
            "before you add: position {position} is slot {slot}, and yours is {yours}.",
            "counted-from-1": "Offsets are counted from 0: position {position} is offset {offset} of block {number}, "
            "slot {slot}, and yours is one further, {yours}.",
            "division-and-remainder-swapped": "How many times {size} goes into the position is the entry of the "
            "table, and what remains is the offset: yours has the two the wrong way round.",
            "always-16": "The block size is the caller's to choose: in blocks of {size}, position {position} is slot "
            "{slot}, and yours answered as if blocks always held 16.",
            "padding-looked-up": "-1 is padding and no position: Python divides it all the same, the table's last "
            "entry answers, and the padding gets slot {last_slot}, which is somebody's.",
            "padding-refused": "-1 is a place in the batch without a token, and nothing is wrong with it: its slot is "
            "-1, and yours ended in {error}.",
            "padding-left-out": "There is one slot for each token, padding too, since keys and slots are paired by "
            "their place: {tokens} need as many slots, and yours are {got}.",
            "padding-is-slot-zero": "Slot 0 is a slot like any other, and block 0 may be somebody's: padding is -1, "
            "which no slot is.",
            "runs-on-in-memory": "What is next to each other in the text may lie anywhere in memory: position "
            "{position} is in block {number}, slot {slot}, and yours counted on from the first slot.",
            "wraps-at-32-bits": "A slot may be larger than 32 bits hold: block {number} begins at {number} times "
            "{size}, and yours wrapped round to {yours}; compute in int64.",
            "behind-the-table-answered": "The table's {blocks} of {size} hold {room}, counted from position 0, and "
            "position {bad} is none of them: raise ValueError, and give out no slot that is another's.",
            "below-padding-answered": "Only -1 is padding: {bad} is a miscounted position, which Python's negative "
            "index hides, so raise ValueError.",
            "other-error": "The error for a position that has no slot is ValueError, raised on purpose, since that is "
            "what a caller waits for: yours ended in {error}.",
        },
        world=_MappingWorld,
        examples=MAPPING_EXAMPLES,
        setups=_block_sizes,
    ),
    Step(
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
        setups=_pool_sizes,
    ),
    Step(
        exercise_id="09-copy",
        title="carry out copy on write",
        points=2,
        subject="copy_blocks",
        reference=(plain_cache.copy_blocks, kv_cache.KVCache.copy),
        properties=(COPIED, AS_ONE, STRIDED, NOTHING_ELSE, NO_PAIRS, KEEPS),
        misconceptions={
            "not-in-place": "The pool that you are given is the memory that attention reads, so copy inside it: yours "
            "left it as it was, and nobody looks at what is returned.",
            "written-into-a-copy": "Where memory lies in another order, `reshape` makes a copy, and yours copied "
            "inside that: here the pool is unchanged; index the pool itself.",
            "viewed": "A pool can be a view in another order than its memory; `view` refuses that, and `reshape`, "
            "which torch suggests, would write into a copy: index the pool's axis of blocks.",
            "first-layer-only": "A block has keys and values in every layer, and this pool has {layers}: yours copied "
            "those of the first.",
            "values-left-out": "A block holds keys and values, both sides of the second axis: yours copied the keys "
            "only, and attention would weigh old values.",
            "first-pair-only": "All pairs are copied, and here are {pairs}: yours stopped after the first.",
            "blocks-exchanged": "A copy leaves the source as it was, since somebody still reads it: yours exchanged "
            "the two blocks.",
            "source-cleared": "A copy leaves the source as it was, since somebody still reads it: yours emptied it.",
            "read-after-write": "The pairs are meant as one: block {overwritten} is read by one pair and overwritten "
            "by another, so read all sources before you write, and keep what you read (a slice is no copy).",
            "pair-turned-round": "A pair is (source, destination): ({first}, {second}) copies block {first} to block "
            "{second}, and nothing goes the other way: yours wrote into block {first}.",
            "another-axis": "A pool is [num_layers, 2, num_blocks, …]: blocks are counted on its third axis, and "
            "yours used their numbers on another.",
            "no-pairs-refused": "Most steps have nothing to copy: no pairs change nothing, and yours ended in {error}.",
        },
        world=_CopyWorld,
        examples=COPY_EXAMPLES,
        setups=_pool_sizes,
    ),
    Step(
        exercise_id="09-swap",
        title="carry out a swap",
        points=1,
        subject="swap_blocks",
        reference=(
            plain_cache.swap_blocks,
            kv_cache.KVCache.swap_out,
            kv_cache.KVCache.swap_in,
            kv_cache._copy_blocks,
        ),
        properties=(SWAPPED, BACK, STRIDED, NOTHING_ELSE, NO_PAIRS, KEEPS),
        misconceptions={
            "not-in-place": "The pools that you are given are the memory itself, so write into the destination: yours "
            "left it as it was, and nobody looks at what is returned.",
            "written-into-a-copy": "Where memory lies in another order, `reshape` makes a copy, and yours wrote into "
            "that: here the destination is unchanged; index the pool itself.",
            "viewed": "A pool can be a view in another order than its memory; `view` refuses that, and `reshape`, "
            "which torch suggests, would write into a copy: index the pool's axis of blocks.",
            "first-layer-only": "A block has keys and values in every layer, and these pools have {layers}: yours "
            "swapped those of the first.",
            "values-left-out": "A block holds keys and values, both sides of the second axis: yours took the keys "
            "only.",
            "first-pair-only": "All pairs are swapped, and here are {pairs}: yours stopped after the first.",
            "blocks-exchanged": "To swap out is to copy to the other pool, and nothing comes the other way: yours "
            "exchanged the two blocks.",
            "source-cleared": "What is read stays as it was, since whose block it is next is for the block manager to "
            "say: yours emptied the source's blocks.",
            "pools-exchanged": "Numbers go from the first pool to the second, and nothing comes back: yours wrote old "
            "numbers over the blocks that were to be saved (a slice is a view, also on the right of an assignment).",
            "pair-turned-round": "A pair is (block of the source, block of the destination): ({first}, {second}) "
            "takes block {first} of the source to block {second} of the destination, and yours has them exchanged.",
            "same-number": "The two pools count their blocks each for itself: block {first} of the source goes to "
            "block {second} of the destination, and not to the one of its own number.",
            "within-one-pool": "There are two pools: a block is read in the source and written in the destination, "
            "and yours did both in one of them.",
            "no-pairs-refused": "Most steps have nothing to swap: no pairs change nothing, and yours ended in {error}.",
        },
        world=_SwapWorld,
        examples=SWAP_EXAMPLES,
        setups=_pool_sizes,
    ),
)

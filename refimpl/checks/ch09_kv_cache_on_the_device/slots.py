"""09-slot-mapping: where a token's keys and values go.

The account lays the tokens of a table out one after the other, and looks up what it laid.
"""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from refimpl.checks.pools import KEEPS
from refimpl.checks.step import History, Log, Operation, Setup, Step, counted, show
from refimpl.checks.thoughts import Thought, ThoughtWorld
from refimpl.device import kv_cache, plain_cache

A_TENSOR = "returns a tensor with one slot for each position"
INT64 = "slots are int64, also where there are none"
SLOT = "a slot is found through the block table"
PADDING_STAYS = "padding stays padding"
NO_SLOT = "a position that has no slot is refused with ValueError"

PAD = -1
USUAL = 16  # tokens a block, in the lessons


def _about(block_size: int, *calls: tuple[tuple[int, ...], tuple[int, ...]]) -> History:
    """Questions about tables and positions."""
    asked = (("slot_mapping", table, positions, "list") for table, positions in calls)
    return History.of({"block_size": block_size}, *asked)


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
    _about(4, ((5, 2), (6,)), ((5, 2), (12, 3))),
    _about(4, ((5, 2), (6,)), ((5, 2), (-2,))),
    _about(4, ((5, 2), (6,)), ((5, 2), (1, -5))),
    _about(4, ((5, 2), (6,)), ((5, 2), (-5, 1))),
)


class _MappingWorld(ThoughtWorld):
    """A function of a table, positions and a block size; each operation is one call."""

    thoughts, examples = MAPPING_THOUGHTS, MAPPING_EXAMPLES

    def __init__(self, subject: Any, setup: Setup, log: Log) -> None:
        super().__init__(subject, setup, log)
        self.last: tuple[Any, list[int]] = ([], [])  # what was returned before, and its slots

    def calls(self) -> Iterable[Operation]:
        size = self.setup["block_size"]
        for table in ((5, 2), (7,), (0, 3, 1), (9, 12, 4, 8, 0), (150_000_000, 3)):
            room = len(table) * size
            edges = sorted({edge + more for edge in range(0, room + 1, size) for more in (-1, 0, 1)} & {*range(room)})
            lists = [tuple(edges), (*edges[::-1], PAD), (PAD, *edges[1::2], PAD, *edges[::2]), (edges[-1],) * 2]
            lists.append(tuple(position for edge in edges for position in (edge, PAD)))
            yield from (("slot_mapping", table, positions, "list") for positions in lists)
            yield "slot_mapping", table, tuple(range(room // 2, room)), "range"
            yield from (("slot_mapping", table, positions, "list") for positions in ((), (PAD,), (PAD, PAD)))
            for bad in (-2, -size - 1, room, room + size):
                yield from (("slot_mapping", table, positions, "list") for positions in ((edges[-1], bad), (bad, 0)))
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

    def _slot_mapping(self, table: tuple[int, ...], positions: tuple[int, ...], how: str) -> None:
        size = self.setup["block_size"]
        case = _Mapping(table, positions, size)
        given = list(positions) if how == "list" else range(positions[0], positions[-1] + 1)
        line = f"slot_mapping({list(table)}, {given}, {size})"
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
        before, slots = self.last
        self.log.expect(A_TENSOR, "what the call before this one returned", _listed(before), slots)
        self.last = got, case.slots
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


def _block_sizes(rng: random.Random) -> Setup:
    return {"block_size": rng.choice((1, 2, 3, 4, 8, USUAL, 32))}


STEP = Step(
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
)

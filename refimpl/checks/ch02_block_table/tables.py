"""02-locate and 02-slots: from a token's position to its block, its offset and its slot.

The accounts do no division. One lays a table's tokens out one after the other and one the slots of all blocks, and both
look up what they laid.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from numbers import Integral
from typing import Any

from refimpl.block import BlockTable, Device, PhysicalTokenBlock, locate, slots
from refimpl.checks.function_world import USUAL, FunctionWorld, given_as, random_sizes
from refimpl.checks.step import (
    History,
    Log,
    Names,
    Operation,
    Setup,
    Step,
    counted,
    equal,
    is_count,
    same_objects,
    show,
)
from refimpl.checks.thoughts import TELLING

A_PAIR = "returns a block and an offset"
BLOCK = "the block is the one that the table names"
OFFSET = "the offset is counted inside the block"
NOT_BEFORE = "a position before the start is refused with ValueError"
NOT_BEHIND = "a position behind the last block is refused with ValueError"
KEEPS = "the table stays as it was"

ONE_EACH = "one slot for each position, in their order"
SLOT = "a slot is found by the block's number and the offset"
EVERY_POSITION = "one position without a block is enough to refuse with ValueError"
READ_ONCE = "what can be read only once is read only once"

POOL_SIZE = 13  # block numbers in tables are below this


class _TableWorld(FunctionWorld):
    """Block tables made by the check, and where their tokens lie by laying them out one after the other."""

    def __init__(self, subject: Any, setup: Setup, log: Log) -> None:
        super().__init__(subject, setup, log)
        self.names = Names("table_")
        self.tables: dict[str, BlockTable] = {}  # name -> the list that the learner's function is given
        self.blocks: dict[str, tuple[PhysicalTokenBlock, ...]] = {}  # name -> what must stand in it

    def choices(self) -> Iterable[Operation]:
        if len(self.tables) < 3:
            yield from _some_tables(self.names.new_key())
        for key, name in self.names.items():
            yield from self.questions(key, len(self.blocks[name]) * self.block_size)

    @abstractmethod
    def questions(self, key: Any, room: int) -> Iterator[Operation]:
        """What may be asked about the table of this key, which has room for `room` tokens."""

    def possible(self, operation: Operation) -> bool:
        verb, key, *_ = operation
        return key not in self.names if verb == "table" else key in self.names

    def perform(self, operation: Operation) -> None:
        verb, key, *arguments = operation
        if verb == "table":
            self._table(self.names.add(key), arguments[0])
        else:
            self.ask(self.names[key], *arguments)

    @abstractmethod
    def ask(self, name: str, *question: Any) -> None:
        """Call the learner's function about this table and compare."""

    def _table(self, name: str, numbers: tuple[int, ...]) -> None:
        self.blocks[name] = tuple(PhysicalTokenBlock(Device.GPU, number, self.block_size) for number in numbers)
        self.tables[name] = list(self.blocks[name])
        made = f"[PhysicalTokenBlock(Device.GPU, number, {self.block_size}) for number in {numbers}]"
        self.log.note(f"{name} = {made if numbers else '[]'}")

    def places(self, name: str) -> list[tuple[PhysicalTokenBlock, int]]:
        """Position -> block and offset, for every token that the table has room for."""
        return [(block, offset) for block in self.blocks[name] for offset in range(self.block_size)]

    def check_kept(self, name: str) -> None:
        """The learner's function has left the table alone."""
        given, wanted = self.tables[name], self.blocks[name]
        kept = same_objects(given, wanted)
        now = show([_number(block) for block in given])
        self.log.hold(KEEPS, kept, f"`{name}` should still hold {[_number(block) for block in wanted]}", f"it is {now}")
        for block in wanted:
            for field, was in (("ref_count", 0), ("last_accessed", -1), ("computed", False)):
                now = getattr(block, field)
                should, but = f"the {field} of block {block.block_number} should stay {was}", f"it is {show(now)}"
                told = {"field": field, "number": block.block_number, "was": was, "now": show(now)}
                self.log.hold(KEEPS, equal(now, was), should, but, "block-marked", **told)

    def told(self, name: str) -> dict[str, Any]:
        """What a sentence about this table may need."""
        blocks = len(self.blocks[name])
        return {
            "blocks": counted(blocks, "block"),
            "num_blocks": blocks,
            "size": self.block_size,
            "room": counted(blocks * self.block_size, "token"),
            "last_offset": self.block_size - 1,
        }


def _some_tables(key: Any) -> Iterator[Operation]:
    """Tables of up to five blocks: ascending, descending and neither."""
    for length in range(6):
        for first, stride in ((0, 1), (9, 1), (12, 12), (4, 5), (11, 7), (7, 2)):
            yield "table", key, tuple((first + stride * index) % POOL_SIZE for index in range(length))


def _number(block: Any) -> Any:
    return block.block_number if isinstance(block, PhysicalTokenBlock) else block


class _LocateWorld(_TableWorld):
    """One position at a time."""

    def questions(self, key: Any, room: int) -> Iterator[Operation]:
        size = self.block_size
        edges = range(0, room, size)
        telling = {position + more for position in edges for more in (0, 1, size // 2, size - 2, size - 1)}
        yield from (("locate", key, position) for position in sorted(telling) if 0 <= position < room)
        yield from (("locate", key, position) for position in (-1, -size, room, room + 1, room + size))

    def ask(self, name: str, *question: Any) -> None:
        (position,) = question
        arguments, places = (self.tables[name], position, self.block_size), self.places(name)
        line, told = f"locate({name}, {position}, {self.block_size})", {"position": position, **self.told(name)}
        if not 0 <= position < len(places):
            refused = NOT_BEFORE if position < 0 else NOT_BEHIND
            accepted = "negative-position-accepted" if position < 0 else "position-behind-the-table-accepted"
            self.refuse(refused, line, *arguments, returned=accepted, **told)
            return
        got = self.log.call(line, self.subject, *arguments, raises=(ValueError, "refuses-too-early"), **told)
        block, offset = places[position]
        is_pair = isinstance(got, (tuple, list)) and len(got) == 2
        should = f"it should return (block {block.block_number}, {offset})"
        self.log.hold(A_PAIR, is_pair, should, f"it returned {_seen(got)}", "nothing-returned" if got is None else None)
        fault = _locate_fault(got, self.blocks[name], position, places) if self.telling else None
        told |= {
            "index": (index := self.blocks[name].index(block)),
            "before": f"{counted(index, 'block')} {'lies' if index == 1 else 'lie'} full",
            "number": block.block_number,
            "offset": offset,
            "got": _seen(got),
            "got_block": show(_number(got[0])),
            "got_offset": show(got[1]),
        }
        for what, holds in ((BLOCK, got[0] is block), (OFFSET, is_count(got[1], offset))):
            self.log.hold(what, holds, should, f"it returned {_seen(got)}", fault, **told)
        self.check_kept(name)
        self.answered = True


def _seen(got: Any) -> str:
    """A learner's answer, a block in it as its number."""
    if isinstance(got, (tuple, list)) and len(got) == 2:
        return f"({_seen(got[0])}, {_seen(got[1])})"
    return f"block {got.block_number}" if isinstance(got, PhysicalTokenBlock) else show(got)


def _locate_fault(
    got: Any, table: tuple[PhysicalTokenBlock, ...], position: int, places: list[tuple[PhysicalTokenBlock, int]]
) -> str | None:
    """The misconception behind a wrong pair of block and offset."""
    block, offset = places[position]
    index, size = table.index(block), block.block_size
    if size < USUAL:
        usual_index, usual_offset = divmod(position, USUAL)
        return "always-16" if got[0] is table[usual_index] and is_count(got[1], usual_offset) else None
    if isinstance(got[0], PhysicalTokenBlock) and got[0] not in table:
        return "another-object" if got[0].block_number == block.block_number else None
    if isinstance(got[0], Integral) and is_count(got[1], offset):
        number_first = {"number-instead-of-block": block.block_number, "index-instead-of-block": index}
        return next((name for name, number in number_first.items() if equal(got[0], number)), None)

    def is_place(index: int, offset: int) -> bool:
        there = -len(table) <= index < len(table)
        return there and got[0] is table[index] and is_count(got[1], offset)

    by_number = sorted(table, key=lambda block: block.block_number)
    looked_up = [block for block in table if block.block_number == index]
    if by_number[index] is not table[-1 - index]:  # else it may be the table from its end
        looked_up.append(by_number[index])
    thoughts = {
        "offset-is-the-index": is_place(index, index),
        "offset-from-the-start": position > size and is_place(index, position),
        "counted-from-1": is_place(index, offset + 1) or (got[0], got[1]) == places[position - 1],
        "index-and-offset-swapped": is_place(offset, index),
        "full-block-not-left": offset == 0 < index and (is_place(index - 1, 0) or is_place(index - 1, size)),
        "one-block-too-far": is_place(index + 1, offset),
        "order-of-the-numbers": any(got[0] is block for block in looked_up) and is_count(got[1], offset),
    }
    return next((name for name, matches in thoughts.items() if matches), None)


class _SlotsWorld(_TableWorld):
    """Several positions at a time, as a list, a range, or something that can be read only once."""

    def __init__(self, subject: Any, setup: Setup, log: Log) -> None:
        super().__init__(subject, setup, log)
        self.answers: list[tuple[Any, list[int]]] = []  # each answer, and what must stand in it still

    def questions(self, key: Any, room: int) -> Iterator[Operation]:
        size = self.block_size
        edges = tuple(
            sorted({edge + more for edge in range(0, room + 1, size) for more in (-1, 0, 1)} & {*range(room)})
        )
        lists = [(), edges, edges[::-1], edges[1::2] + edges[::2], edges[-1:] * 2 + edges[:1]]
        lists += [(position,) for position in edges]
        yield from (("slots", key, how, positions) for positions in lists for how in ("list", "iter"))
        yield from (("slots", key, "range", tuple(range(first, room))) for first in (0, room // 2) if room)
        for bad in (-1, -size, room, room + size):
            yield from (("slots", key, "list", positions) for positions in ((bad,), (*edges, bad), (bad, *edges)))

    def ask(self, name: str, *question: Any) -> None:
        how, positions = question
        given, shown = given_as(how, positions)
        arguments, places = (self.tables[name], given, self.block_size), self.places(name)
        line = f"slots({name}, {shown}, {self.block_size})"
        bad = next((position for position in positions if not 0 <= position < len(places)), None)
        told = {"bad": bad, **self.told(name)}
        if bad is not None:
            accepted = "position-without-a-block-answered" if self.telling else None
            self.refuse(EVERY_POSITION, line, *arguments, returned=accepted, **told)
            return
        once_more = how == "iter" and self.answered and self.telling  # the same is known to be right for a list
        raises = (ValueError, "read-twice" if once_more else "refuses-too-early")
        got = self.log.call(line, self.subject, *arguments, raises=raises, **told)
        row = {place: slot for slot, place in enumerate(_laid_out(self.block_size))}
        wanted = [row[block.block_number, offset] for block, offset in map(places.__getitem__, positions)]
        self._compare(name, how, positions, got, wanted)
        self._check_answers()
        self.answers.append((got, wanted))
        if how == "list":
            self.log.hold(KEEPS, given == [*positions], "the positions should stay as they were", f"they are {given}")
        self.check_kept(name)
        self.answered |= bool(wanted)

    def _check_answers(self) -> None:
        """What earlier calls returned is the callers', and stays what it was."""
        for answer, was in self.answers:
            slots_now = _listed(answer) or []
            kept = len(slots_now) == len(was) and all(map(is_count, slots_now, was))
            told = {"was": show(was), "now": show(answer)}
            should = f"the list of an earlier call should still be {told['was']}"
            self.log.hold(ONE_EACH, kept, should, f"it is {told['now']}", "earlier-calls-remembered", **told)

    def _compare(self, name: str, how: str, positions: tuple[int, ...], got: Any, wanted: list[int]) -> None:
        answer = _listed(got)
        slot_at = dict(enumerate(answer or ()))
        differs = next((i for i, slot in enumerate(wanted) if not is_count(slot_at.get(i), slot)), 0)
        told = {"got": show(got), "asked": len(positions), **self.told(name)}
        if positions:
            block, offset = self.places(name)[positions[differs]]
            told |= {"position": positions[differs], "number": block.block_number, "offset": offset}
            told["slot"] = wanted[differs]
        fault = "nothing-returned" if got is None else None
        if self.telling and isinstance(got, Iterator):
            fault = "generator-for-a-list"
        if answer is not None and wanted and self.telling:
            once = how == "iter" and not answer and self.answered
            fault = "read-twice" if once else _slots_fault(answer, self.blocks[name], positions, wanted)
        should, but = f"it should return {show(wanted)}", f"it returned {show(got)}"
        one_each = answer is not None and len(answer) == len(wanted)
        if answer is not None and show(answer) == show(wanted):  # too long to be shown where they differ
            should, but = f"it should return {len(wanted)} slots", f"it returned {len(answer)}"
            if one_each and positions:
                should = f"position {positions[differs]} should be in slot {wanted[differs]}"
                but = f"it is in {show(answer[differs])}"
        once_or = READ_ONCE if how == "iter" else ""
        self.log.hold(once_or or ONE_EACH, one_each, should, but, fault, **told)
        if wanted:
            right = all(map(is_count, answer or (), wanted))
            self.log.hold(once_or or SLOT, right, should, but, fault, **told)


def _listed(got: Any) -> list[Any] | None:
    """The answer as a list; a tuple or an array serves as well, what can be read only once does not."""
    if not isinstance(got, Sequence) and not hasattr(got, "tolist"):
        return None
    try:
        return list(got)
    except Exception:  # noqa: BLE001  (a learner's strange object may raise anything)
        return None


def _laid_out(block_size: int) -> list[tuple[int, int]]:
    """Slot -> block number and offset, for the whole pool."""
    return [(number, offset) for number in range(POOL_SIZE) for offset in range(block_size)]


def _slots_fault(
    got: list[Any], table: tuple[PhysicalTokenBlock, ...], positions: tuple[int, ...], wanted: list[int]
) -> str | None:
    """The misconception behind wrong slots."""
    size = table[0].block_size
    if size < USUAL:
        usual = [table[position // USUAL].block_number * USUAL + position % USUAL for position in positions]
        return "always-16" if equal(got, usual) else None
    places = [(block.block_number, offset) for block in table for offset in range(size)]
    located = [places[position] for position in positions]
    first_block, first = places[min(positions)][0], wanted[0]  # where positions descend, another thought may be behind
    thoughts: dict[str, list[Any]] = {
        "position-for-a-slot": list(positions),
        "added-without-multiplying": [number + offset for number, offset in located],
        "offset-left-out": [number * size for number, _ in located],
        "position-instead-of-offset": [
            number * size + position for (number, _), position in zip(located, positions, strict=True)
        ],
        "number-and-offset-swapped": [offset * size + number for number, offset in located],
        "multiplied-by-the-number-of-blocks": [number * len(table) + offset for number, offset in located],
        "pairs-instead-of-slots": located,
        "first-position-only": wanted[:1],
        "first-block-for-all": [first_block * size + offset for _, offset in located],
        "runs-on-in-memory": [first + position - positions[0] for position in sorted(positions)],
        "order-of-memory": sorted(wanted),
        "a-position-once": list(dict.fromkeys(wanted)),
    }
    return next((name for name, answer in thoughts.items() if answer != wanted and equal(got, answer)), None)


def _about(numbers: tuple[int, ...], *operations: Operation, block_size: int = 16) -> History:
    """Questions about one table of the blocks with these numbers."""
    asked = tuple((verb, "a", *arguments) for verb, *arguments in operations)
    return History.of({"block_size": block_size, TELLING: 1}, ("table", "a", numbers), *asked)


BLOCK_MARKED = (
    "To look up where a token lies is neither to use its block nor to own it: the `{field}` of block {number} was "
    "{was}, and is {now} after your call, so leave it as it was."
)

EXAMPLE = (7, 9, 5)  # 35 tokens in blocks of 16; its order is neither up nor down, and no entry's number is its index


LOCATE = Step(
    exercise_id="02-locate",
    title="from a position to its block",
    points=3,
    subject="locate",
    reference=(locate,),
    properties=(A_PAIR, BLOCK, OFFSET, NOT_BEFORE, NOT_BEHIND, KEEPS),
    misconceptions={
        "nothing-returned": "The caller needs both, the block and the offset in it: yours returned None.",
        "index-instead-of-block": "{index} is an index into the table and not a block: entry {index} of this table "
        "is block {number}, and that block is what `locate` returns.",
        "number-instead-of-block": "`locate` returns the block itself and not its number, because whoever writes "
        "there must also see its owner count: yours returned the number {got_block}.",
        "another-object": "`locate` returns the very block that stands in the table: yours has its number and is "
        "another object, and who counts an owner on that one is seen by nobody else.",
        "always-16": "The block size is the caller's to choose: in blocks of {size}, position {position} is offset "
        "{offset} of block {number}, and yours answered as if blocks always held 16.",
        "offset-from-the-start": "An offset starts anew in every block: position {position} is offset {offset} of "
        "its block, and yours says {got_offset}.",
        "counted-from-1": "Positions and offsets are counted from 0: position {position} is offset {offset} of "
        "block {number}, and yours returned {got}.",
        "offset-is-the-index": "The offset is what the division leaves over, and not the quotient once more: "
        "position {position} is offset {offset} of block {number}, and yours returned {got}.",
        "index-and-offset-swapped": "How many times {size} goes into {position} is the index into the table, and "
        "what remains is the offset: yours has the two the wrong way round.",
        "full-block-not-left": "A block of {size} has the offsets 0 to {last_offset}, so position {position} "
        "begins the next one, block {number}: yours returned {got}.",
        "one-block-too-far": "{before} before position {position}, so its block is entry {index} of the table, "
        "counted from 0: that is block {number}, and yours took block {got_block}.",
        "order-of-the-numbers": "The order of the text is the order of the table, whatever the numbers of the "
        "blocks: entry {index} is block {number}, and yours took block {got_block}.",
        "refuses-too-early": "In the table's {blocks} of {size} there is room for {room}, and position {position} "
        "is one of them: yours ended in {error}.",
        "negative-position-accepted": "There is nothing before position 0, and Python's negative index hides it: "
        "raise ValueError for {position}, or a caller's mistake reads the end of the text.",
        "position-behind-the-table-accepted": "In the table's {blocks} of {size} there is room for {room}, "
        "counted from position 0: position {position} has no block, so raise ValueError.",
        "other-error": "The error for a position without a block is ValueError, raised on purpose, since that is "
        "what a caller waits for: yours ended in {error}.",
        "block-marked": BLOCK_MARKED,
    },
    world=_LocateWorld,
    examples=(
        _about(EXAMPLE, ("locate", 20), ("locate", 34), ("locate", 48)),
        _about(EXAMPLE, ("locate", 18)),
        _about(EXAMPLE, ("locate", 16)),
        _about(EXAMPLE, ("locate", 34)),
        _about(EXAMPLE, ("locate", 15)),
        _about(EXAMPLE, ("locate", 0)),
        _about(EXAMPLE, ("locate", 47)),
        _about((1, 0, 2), ("locate", 20)),
        _about((5, 2), ("locate", 7), block_size=4),
        _about(EXAMPLE, ("locate", 20), ("locate", -1)),
        _about(EXAMPLE, ("locate", 20), ("locate", 48)),
        _about(EXAMPLE, ("locate", 20), ("locate", 64)),
        _about((), ("locate", 0)),
    ),
    setups=random_sizes,
)


SLOTS = Step(
    exercise_id="02-slots",
    title="from positions to slots",
    points=3,
    subject="slots",
    reference=(slots,),
    properties=(ONE_EACH, SLOT, READ_ONCE, EVERY_POSITION, KEEPS),
    misconceptions={
        "nothing-returned": "The caller needs the slots, to write keys and values there: yours returned None.",
        "always-16": "The block size is the caller's to choose: in blocks of {size}, position {position} is in "
        "slot {slot}, and yours answered as if blocks always held 16.",
        "position-for-a-slot": "A position counts along the text and a slot along the memory: position {position} "
        "is offset {offset} of block {number}, which is slot {slot}, and yours is the position itself.",
        "added-without-multiplying": "Before block {number} lie {number} others of {size} slots each, so multiply "
        "before you add the offset: position {position} is in slot {slot}.",
        "offset-left-out": "A block's number leads to its first slot, and the offset from there to the token's: "
        "position {position} is offset {offset} of block {number}, slot {slot}.",
        "position-instead-of-offset": "The whole blocks before a token are counted by the table already: add the "
        "offset {offset} to the first slot of block {number} and not the position {position}.",
        "number-and-offset-swapped": "A block has {size} slots, so it is its number that is multiplied by {size}, "
        "and the offset that is added: yours has the two the wrong way round.",
        "multiplied-by-the-number-of-blocks": "Every block has {size} slots, however many blocks the table has: "
        "block {number} begins at {size} times its number, and yours multiplied by {num_blocks}.",
        "pairs-instead-of-slots": "A slot is one number, which says block and offset together: yours returned the "
        "two side by side.",
        "first-position-only": "Each position gets its slot, and there are {asked} of them: yours stopped after "
        "the first, and returned {got}.",
        "generator-for-a-list": "The slots are counted and read more than once, and a generator is used up after "
        "one reading: return a list, while yours returned {got}.",
        "first-block-for-all": "Each position is looked up anew: position {position} lies in block {number}, and "
        "yours used the block of the first position for all of them.",
        "runs-on-in-memory": "What is next to each other in the text may lie anywhere in memory: position "
        "{position} is in block {number}, slot {slot}, and yours counted on from the first slot.",
        "order-of-memory": "The slots stand in the order of the positions, because that is how keys and values "
        "come: position {position} belongs to slot {slot}, and yours sorted the slots.",
        "a-position-once": "Each position gets its slot, also one that was asked for before: yours left out what "
        "it had seen, and returned {got}.",
        "read-twice": "Some iterables can be read only once: yours found nothing left the second time, so go "
        "through the positions once, or make a list of them first.",
        "refuses-too-early": "In the table's {blocks} of {size} there is room for {room}, and all of these "
        "positions are among them: yours ended in {error}.",
        "position-without-a-block-answered": "In the table's {blocks} of {size} there is room for {room}, "
        "counted from position 0, and position {bad} is none of them: raise ValueError, and return no slot that is "
        "another's.",
        "other-error": "The error for a position without a block is ValueError, raised on purpose, since that is "
        "what a caller waits for: yours ended in {error}.",
        "block-marked": BLOCK_MARKED,
        "earlier-calls-remembered": "Each call has an answer of its own: make the list inside the function, for the "
        "one that an earlier call returned was {was}, and is {now} after this one.",
    },
    world=_SlotsWorld,
    examples=(
        _about(EXAMPLE, ("slots", "list", (15, 16, 34))),
        _about(EXAMPLE, ("slots", "list", (20,))),
        _about(EXAMPLE, ("slots", "list", (34, 20, 20, 0))),
        _about(EXAMPLE, ("slots", "range", tuple(range(35)))),
        _about(EXAMPLE, ("slots", "list", (20,)), ("slots", "iter", (15, 16, 34))),
        _about(EXAMPLE, ("slots", "list", ())),
        _about((5, 2), ("slots", "list", (0, 3, 7)), block_size=4),
        _about(EXAMPLE, ("slots", "list", (20,)), ("slots", "list", (-1,))),
        _about(EXAMPLE, ("slots", "list", (20,)), ("slots", "list", (20, 48))),
        _about(EXAMPLE, ("slots", "list", (20,)), ("slots", "list", (34, -1, 20))),
        _about((), ("slots", "list", (0,))),
    ),
    setups=random_sizes,
)

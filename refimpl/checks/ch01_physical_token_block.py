"""Chapter 01: what a block says of itself, what its memory takes, and when two blocks are one.

The account beside the learner's blocks is a plain record of each one's fields; sizes are multiplied out here a second
time; and which objects are one is known from how the check made them.
"""

from __future__ import annotations

import itertools
import math
import operator
import random
from collections.abc import Iterable
from functools import partial
from typing import Any

from refimpl.block import Device, PhysicalTokenBlock, distinct_blocks, kv_bytes_per_block
from refimpl.checks.step import History, Log, Names, Operation, Setup, Step, World, equal, is_whole, one_line, show
from refimpl.checks.thoughts import only_one

GIVEN = "a block keeps what it is given"
NO_KEY = "a block without a content key says so"
START = "a new block has no owner and no past"
REFUSES = "an impossible block is refused with ValueError"
OWN_STATE = "what happens to one block happens to no other"
ONE_OBJECT = "a block equals itself alone, and can be the key of a dict"

FIELDS = ("device", "block_number", "block_size", "block_hash", "num_hashed_tokens")
START_VALUES = {"ref_count": 0, "last_accessed": -1, "computed": False}
USED_VALUES = {"ref_count": 2, "last_accessed": 7.5, "computed": True}  # what the life of a block brings


class _Missing:
    def __repr__(self) -> str:
        return "missing"


MISSING = _Missing()


class _BlockWorld(World):
    """Blocks of the learner's class beside records of their fields; called a, b, c … in the order they are made."""

    def __init__(self, subject: Any, setup: Setup, log: Log) -> None:
        super().__init__(subject, setup, log)
        self.block_size = setup["block_size"]
        self.blocks: dict[str, Any] = {}
        self.records: dict[str, dict[str, Any]] = {}
        self.name_of: dict[Any, str] = {}  # the blocks as keys, as block managers use them
        self.names = Names()

    def choices(self) -> Iterable[Operation]:
        new, number = self.names.new_key(), len(self.blocks)
        for device in Device:
            yield "__init__", new, device, number, self.block_size
            yield "__init__", new, device, 3, 1
            yield "__init__", new, device, 3, self.block_size, "a key", 16
            yield "__init__", new, device, number, self.block_size, number, 16 * number
        if self.blocks:
            yield "__init__", new, Device.GPU, -number, self.block_size
            yield "__init__", new, Device.GPU, number, 1 - number
        yield from (("use", key) for key in self.names)

    def possible(self, operation: Operation) -> bool:
        """A refusal is asked for once a block has been made: an error at every call is no refusal."""
        verb, key, *arguments = operation
        if verb == "use":
            return key in self.names
        return key not in self.names and (bool(self.blocks) or _is_possible(*arguments))

    def perform(self, operation: Operation) -> None:
        verb, key, *arguments = operation
        used = None
        if verb == "use":
            used = self.names[key]
            self._use(used)
        elif _is_possible(*arguments):
            self._make(self.names.add(key), *arguments)
        else:
            self._refuse(*arguments)
        self._check_all(used)

    def _make(self, name: str, *arguments: Any) -> None:
        device, number, size, block_hash, num_hashed_tokens = (*arguments, -1, 0)[:5]
        block = self.log.call(
            f"{name} = {_call(arguments)}",
            partial(_construct, self.subject),
            *arguments,
            raises=(ValueError, self._refusal_fault(number, size)),
            size=size,
        )
        values = (device, number, size, block_hash, num_hashed_tokens)
        self.blocks[name], self.records[name] = block, {**dict(zip(FIELDS, values, strict=True)), **START_VALUES}
        for field in FIELDS:
            self._check_field(GIVEN if field in FIELDS[: len(arguments)] else NO_KEY, name, field)
        for field in START_VALUES:
            self._check_field(START, name, field)
        self._check_identity(name)

    def _refusal_fault(self, number: int, size: int) -> str:
        """What the refusal of a good block tells, where only the number or only the size can be the reason."""
        if number >= size or (number == 0 and size == 1):
            zero_was_made = any(record["block_number"] == 0 for record in self.records.values())
            return "size-refused" if number == 0 and zero_was_made else "number or size"
        return "size-refused" if number else "number-zero-refused"

    def _check_field(self, property_name: str, name: str, field: str) -> None:
        got, expected = self._read(name, field), self.records[name][field]
        fault = _field_fault(property_name, field, got)
        if field == "block_number" and self._is_swapped(name):
            fault = "arguments-swapped"
        self._expect(property_name, name, field, got, expected, fault)

    def _is_swapped(self, name: str) -> bool:
        pair = ("block_number", "block_size")
        return all(
            equal(self._read(name, field), self.records[name][other])
            for field, other in zip(pair, pair[::-1], strict=True)
        )

    def _expect(self, property_name: str, name: str, field: str, got: Any, expected: Any, fault: str | None) -> None:
        countable = field == "last_accessed" or not isinstance(got, float)
        self.log.hold(
            property_name,
            countable and equal(got, expected),
            f"{name}.{field} should be {show(expected)}",
            f"it is {show(got)}",
            fault,
            block=name,
            field=field,
            got=show(got),
            expected=show(expected),
        )

    def _read(self, name: str, field: str) -> Any:
        return self.log.ask(f"{name}.{field}", partial(getattr, self.blocks[name], field, MISSING))

    def _check_identity(self, name: str) -> None:
        block = self.blocks[name]
        for other, made_before in self.blocks.items():
            if other != name:
                new = f"`{name}` should be a new object"
                self.log.hold(ONE_OBJECT, made_before is not block, new, f"it is `{other}`")
                same = self.log.ask(f"{other} == {name}", partial(operator.eq, made_before, block))
                should = f"`{other} == {name}` should be False, because they are two objects"
                self.log.hold(ONE_OBJECT, not equal(same, True), should, "it is True", "compared-by-looks")
        should = f"`{name}` should be fit to be the key of a dict"
        self.log.hold(ONE_OBJECT, self._becomes_key(name), should, "it has no hash", "compared-by-looks")

    def _becomes_key(self, name: str) -> bool:
        try:
            self.name_of[self.blocks[name]] = name
        except TypeError:
            return False
        return True

    def _refuse(self, *arguments: Any) -> None:
        _, number, size, *_ = arguments
        self.log.refuse(
            REFUSES,
            _call(arguments),
            partial(_construct, self.subject),
            *arguments,
            returned="negative-number-accepted" if number < 0 else "no-room-accepted",
            other_error="other-error",
            number=number,
            size=size,
        )

    def _use(self, name: str) -> None:
        fields = ", ".join(f"{name}.{field}" for field in USED_VALUES)
        self.log.note(f"{fields} = {', '.join(map(repr, USED_VALUES.values()))}")
        for field, value in USED_VALUES.items():
            setattr(self.blocks[name], field, value)
            self.records[name][field] = value

    def _check_all(self, used: str | None) -> None:
        """Every block made so far says what its record says, and is found as a key."""
        for name, record in self.records.items():
            for field, expected in record.items():
                fault = None if name == used else "shared-state"
                self._expect(OWN_STATE, name, field, self._read(name, field), expected, fault)
            found = self.log.ask(f"name_of[{name}]", partial(self.name_of.get, self.blocks[name]))
            should = f"`{name}` should be found as the key of a dict"
            self.log.hold(ONE_OBJECT, found == name, should, "it is not", "compared-by-looks")


def _construct(block_class: Any, *arguments: Any) -> Any:
    """A block; those of the CPU name their arguments, so that names and order both count."""
    by_name = arguments[0] is Device.CPU
    return block_class(**dict(zip(FIELDS, arguments, strict=False))) if by_name else block_class(*arguments)


def _call(arguments: tuple[Any, ...]) -> str:
    """The line that makes a block."""
    names = [f"{field}=" if arguments[0] is Device.CPU else "" for field in FIELDS]
    said = (f"{name}{show(value)}" for name, value in zip(names, arguments, strict=False))
    return f"PhysicalTokenBlock({', '.join(said)})"


def _is_possible(_device: Device, number: int, size: int, *_: Any) -> bool:
    return number >= 0 and size >= 1


def _field_fault(property_name: str, field: str, got: Any) -> str | None:
    """The misconception behind a field that does not start as it should."""
    if got is MISSING:
        return "field-left-out"
    if property_name == NO_KEY:
        return "key-made-up" if field == "block_hash" else "covers-the-block"
    if field in ("block_hash", "num_hashed_tokens"):
        return "key-dropped"
    if field == "ref_count" and equal(got, 1):
        return "owner-from-the-start"
    if field == "last_accessed" and isinstance(got, int | float) and got >= 0:
        return "accessed-at-birth"
    return "computed-at-birth" if field == "computed" and equal(got, True) else None


def _blocks_history(*operations: Operation) -> History:
    return History({"block_size": 16}, operations)


FACTORS = "all that a block holds is counted, in bytes"
WHOLE = "bytes are a whole number"
IMPOSSIBLE = "an impossible size is refused with ValueError"

SIZES = ("block_size", "num_layers", "num_kv_heads", "head_dim", "dtype_bytes")
UNITS = (1000, 1024, 10**6, 2**20, 10**9, 2**30)


class _SizeWorld(World):
    """A function of five sizes; each operation is one call."""

    def __init__(self, subject: Any, setup: Setup, log: Log) -> None:
        super().__init__(subject, setup, log)
        self.sizes = tuple(setup.values())
        self.answered = self.two_bytes_answered = False

    def choices(self) -> Iterable[Operation]:
        yield "kv_bytes_per_block", *self.sizes
        yield "kv_bytes_per_block", 1, *self.sizes[1:]
        yield "kv_bytes_per_block", *(1 for _ in SIZES)
        for place in range(len(SIZES) if self.answered else 0):
            yield "kv_bytes_per_block", *self.sizes[:place], -place, *self.sizes[place + 1 :]

    def possible(self, operation: Operation) -> bool:
        """The refusal of an impossible size is given with the task, so it counts once an answer is right."""
        return self.answered or min(operation[1:]) > 0

    def _kv_bytes_per_block(self, *sizes: int) -> None:
        line = f"kv_bytes_per_block({', '.join(map(str, sizes))})"
        named = dict(zip(SIZES, sizes, strict=True))
        if min(sizes) > 0:
            self._answer(line, sizes, named)
            return
        self.log.refuse(
            IMPOSSIBLE,
            line,
            self.subject,
            *sizes,
            returned="impossible-size-answered",
            other_error=None,
            size=next(f"`{name}` is {size}" for name, size in named.items() if size < 1),
        )

    def _answer(self, line: str, sizes: tuple[int, ...], named: dict[str, int]) -> None:
        got = self.log.call(line, self.subject, *sizes)
        expected = math.prod((2, *sizes))
        misconception = _size_fault(got, expected, named, self.two_bytes_answered)
        evidence = {"got": f"{got:,}" if isinstance(got, int) else show(got), "expected": expected, **named}
        self.log.expect(FACTORS, "the number of bytes", got, expected, misconception, **evidence)
        self.log.hold(WHOLE, is_whole(got), "it should be an int", f"it is {show(got)}", "not-whole", **evidence)
        self.answered |= min(sizes[:3]) > 1
        self.two_bytes_answered |= sizes[-1] == 2


def _size_fault(got: Any, expected: int, sizes: dict[str, int], two_bytes_answered: bool) -> str | None:
    """The misconception behind a wrong number of bytes, where the sizes leave no doubt which one it is."""
    if got is None:
        return "nothing-returned"
    heads = sizes["num_kv_heads"]
    answers: dict[str, tuple[float, ...]] = {
        "values-forgotten": (expected / 2,),
        "queries-cached": (expected * 3 / 2,),
        "one-token-only": (expected / sizes["block_size"],),
        "one-layer-only": (expected / sizes["num_layers"],),
        "one-head-only": (expected / heads,),
        "numbers-not-bytes": (expected / sizes["dtype_bytes"],),
        "two-bytes-assumed": (expected * 2 / sizes["dtype_bytes"],) * two_bytes_answered,
        "bits-not-bytes": (expected * 8,),
        "head dim shared out": (expected / heads,) * (sizes["head_dim"] % heads == 0),
        "another-unit": tuple(answer for unit in UNITS for answer in (expected / unit, expected // unit) if answer),
    }
    fitting = [name for name, values in answers.items() if any(_near(got, value, expected) for value in values)]
    factors = [factor for factor in (2, *sizes.values()) if factor > 1]
    several = [math.prod(some) for n in range(2, 7) for some in itertools.combinations(factors, n)]
    if min(*list(sizes.values())[:4]) == 1 or any(_near(got, expected / factor, expected) for factor in several):
        return None
    return only_one(fitting)


def _near(got: Any, wrong: float, right: int) -> bool:
    """Whether the answer is this wrong one; where it is right it is no sign of anything."""
    return wrong != right and isinstance(got, int | float) and math.isclose(got, wrong, rel_tol=1e-9)


def _sizes_history(*calls: tuple[int, int, int, int, int]) -> History:
    setup = dict(zip(("tokens", "layers", "heads", "dim", "bytes"), calls[0], strict=True))
    return History(setup, tuple(("kv_bytes_per_block", *sizes) for sizes in calls))


def _model_sizes(rng: random.Random) -> Setup:
    return {
        "tokens": rng.choice((1, 16, 24, 40, 128)),
        "layers": rng.choice((12, 22, 30, 40, 61, 80)),
        "heads": rng.choice((1, 3, 5, 8, 10, 40)),
        "dim": rng.choice((48, 64, 80, 96, 256)),
        "bytes": rng.choice((1, 2, 4)),
    }


ALL = "every block of the tables is in the list, and no other"
ONCE = "a block in several tables is in the list once"
FIRST_SEEN = "first seen, first in the list"
UNTOUCHED = "tables and blocks stay as they were"

THOUGHTS = (
    "shared-block-listed-twice",
    "number-is-not-identity",
    "looks-alike",
    "shared-block-left-out",
    "only-shared-blocks",
    "one-table-only",
    "one device only",
    "first entries only",
)
SECOND_POOL = "_of_pool_2"  # ends the name of a block that another pool made, on a GPU and numbered from 0 as well


class _IdentityWorld(World):
    """Block tables made by the check. It knows each block by a name: which pool made it, and its number there."""

    def __init__(self, subject: Any, setup: Setup, log: Log) -> None:
        super().__init__(subject, setup, log)
        self.num_blocks = setup["num_blocks"]
        self.blocks: dict[str, PhysicalTokenBlock] = {}  # name -> block, made when a table first lists it
        self.looks: dict[str, dict[str, Any]] = {}  # name -> its fields when it was made
        self.tables: dict[str, list[str]] = {}  # name -> the names of its blocks
        self.given: dict[str, list[PhysicalTokenBlock]] = {}  # name -> the table itself
        self.names = Names("table_")
        self.answered: list[list[str]] = []  # what has been asked, and answered well
        self.thoughts = set(THOUGHTS)  # those that would have given every answer so far

    def choices(self) -> Iterable[Operation]:
        new, gpu = self.names.new_key(), tuple(f"gpu_{number}" for number in range(self.num_blocks))
        for row in (gpu, gpu[::-1], gpu[:1], ("cpu_0", *gpu[1:]), (*gpu, f"gpu_0{SECOND_POOL}"), ("cpu_0",), ()):
            yield "table", new, row
        yield "table", new, (*gpu, *gpu[:2])  # as with a window that goes round
        keys = tuple(self.names)
        for chosen in (keys, keys[::-1], keys[-2:]):
            yield "distinct_blocks", "list", *chosen
            yield "distinct_blocks", "generator", *chosen

    def possible(self, operation: Operation) -> bool:
        verb, key, *arguments = operation
        if verb == "table":
            return key not in self.names
        return all(argument in self.names for argument in arguments)

    def perform(self, operation: Operation) -> None:
        verb, key, *arguments = operation
        if verb == "table":
            self._table(self.names.add(key), *arguments)
        else:
            self._ask(key, [self.names[argument] for argument in arguments])

    def _table(self, name: str, row: tuple[str, ...]) -> None:
        for block_name in dict.fromkeys(row):
            if block_name not in self.blocks:
                device, number, *_ = block_name.split("_")
                self.blocks[block_name] = PhysicalTokenBlock(Device[device.upper()], int(number), block_size=16)
                self.looks[block_name] = _look(self.blocks[block_name])
            self.blocks[block_name].ref_count += 1
        self.tables[name] = list(row)
        self.given[name] = [self.blocks[block_name] for block_name in row]
        twin = any(block_name.endswith(SECOND_POOL) for block_name in row)
        self.log.note(f"{name} = {_row(row)}" + "    # GPU block 0 of another pool, too" * twin)

    def _ask(self, form: str, names: list[str]) -> None:
        given, inside = [self.given[name] for name in names], f"[{', '.join(names)}]"
        if form == "list":
            got = self.log.call(f"distinct_blocks({inside})", self.subject, given)
        else:
            got = self.log.call(
                f"distinct_blocks(table for table in {inside})",
                self.subject,
                (table for table in given),
                raises=(TypeError, "list-of-tables-expected") if names in self.answered else None,
            )
        rows = [self.tables[name] for name in names]
        wanted = _first_seen(name for row in rows for name in row)
        should, kind = f"it should return the list {_row(wanted)}", self._kind_fault(got, wanted)
        plain = got is None or isinstance(got, int | float | str)
        but = f"it returned {show(got) if plain else f'an object of type {type(got).__name__}'}"
        self.log.hold(ALL, isinstance(got, list | tuple), should, but, kind, got=show(got))
        again = "walked-twice" if form == "generator" else "earlier-calls-remembered"
        self._compare(got, wanted, rows, again if names in self.answered else None)
        if wanted:
            handed_out = next((name for name, table in self.given.items() if table is got), None)
            should, but = "it should return a list of its own", f"it returned `{handed_out}` itself"
            self.log.hold(UNTOUCHED, handed_out is None, should, but, "table-handed-out", table=handed_out)
            self._check_untouched()
            self.answered.append(names)

    def _kind_fault(self, got: Any, wanted: list[str]) -> str | None:
        """The misconception behind an answer that is no list."""
        if got is None:
            return "nothing-returned"
        if isinstance(got, set | frozenset):
            return "order-lost"
        return "count-instead-of-blocks" if wanted and equal(got, len(wanted)) else None

    def _compare(self, got: Any, wanted: list[str], rows: list[list[str]], fault: str | None) -> None:
        seen = [self._name_of(item) for item in got]
        should, but = f"it should return {_row(wanted)}", f"it returned {one_line(_row(seen))}"
        fault = fault or self._fault(got, seen, rows)
        twice = next((name for name in seen if seen.count(name) > 1), None)
        missing = next((name for name in wanted if name not in seen), None)
        evidence = {"twice": twice, "missing": missing, "number": missing and self.blocks[missing].block_number}
        self.log.hold(ALL, set(seen) == set(wanted), should, but, fault, **evidence)
        if len(wanted) < sum(map(len, rows)):
            self.log.hold(ONCE, twice is None, should, but, fault, **evidence)
        if len(wanted) > 1:
            self.log.hold(FIRST_SEEN, seen == wanted, should, but, "order-lost", **evidence)

    def _name_of(self, item: Any) -> str:
        if isinstance(item, PhysicalTokenBlock):
            other = f"another {item.device.name.lower()}_{item.block_number}"
            return next((name for name, block in self.blocks.items() if block is item), other)
        return show(item)

    def _fault(self, got: Any, seen: list[str], rows: list[list[str]]) -> str | None:
        """The misconception behind an answer, where it is the only one that would give this and all answers before."""
        listed = [name for row in rows for name in row]
        wanted = _first_seen(listed)
        if not set(seen) <= self.blocks.keys():
            return self._strangers_fault(got, seen, wanted)
        owners = {name: self.blocks[name].ref_count for name in wanted}
        answers = {
            "shared-block-listed-twice": len(seen) > len(wanted) and set(seen) == set(wanted),
            "number-is-not-identity": self._alike(seen, listed, "block_number"),
            "looks-alike": self._alike(seen, listed, "device", "block_number"),
            "shared-block-left-out": seen == [name for name in wanted if owners[name] == 1],
            "only-shared-blocks": seen == [name for name in wanted if owners[name] > 1],
            "one-table-only": rows != [] and seen in (rows[0], rows[-1]) and len(set(seen)) == len(seen),
            "one device only": seen == [name for name in wanted if name.startswith("gpu")],
            "first entries only": seen == _first_seen(row[0] for row in rows if row),
        }
        self.thoughts &= {name for name, fits in answers.items() if fits}
        thought = only_one(self.thoughts) if len(seen) > 1 else None
        by_fields = thought in ("number-is-not-identity", "looks-alike")
        return thought if not by_fields or self._passed_by(seen, rows, wanted) else None

    def _passed_by(self, seen: list[str], rows: list[list[str]], wanted: list[str]) -> bool:
        """Whether a missing block was met and not taken: one further on in its table was, or one with its number."""
        missing = next((name for name in wanted if name not in seen), wanted[-1])
        further_on = wanted[wanted.index(missing) + 1 :]
        row = next(row for row in rows if missing in row)
        number = self.blocks[missing].block_number
        return any(name in row or self.blocks[name].block_number == number for name in further_on if name in seen)

    def _alike(self, seen: list[str], listed: list[str], *fields: str) -> bool:
        """Whether the answer has one block, whichever, of those that say the same of themselves in these fields."""

        def look(name: str) -> tuple[str, ...]:
            return tuple(str(getattr(self.blocks[name], field)) for field in fields)

        return sorted(map(look, seen)) == sorted(set(map(look, listed)))

    def _strangers_fault(self, got: Any, seen: list[str], wanted: list[str]) -> str | None:
        """The misconception behind an answer that holds something else than blocks of the tables."""
        if set(wanted) < set(seen) and all(isinstance(item, PhysicalTokenBlock) for item in got):
            return "earlier-calls-remembered"
        if all(isinstance(item, int) for item in got):
            return "numbers-instead-of-blocks"
        return "blocks-copied" if seen == [f"another {name}" for name in wanted] else None

    def _check_untouched(self) -> None:
        for name, row in self.tables.items():
            now = [self._name_of(block) for block in self.given[name]]
            should = f"`{name}` should still be {_row(row)}"
            self.log.hold(UNTOUCHED, now == row, should, f"it is {one_line(_row(now))}", "table-changed", table=name)
        for name, block in self.blocks.items():
            owners = sum(name in row for row in self.tables.values())
            self.log.expect(UNTOUCHED, f"{name}.ref_count", block.ref_count, owners, "owner-counted", block=name)
            for field, was in self.looks[name].items():
                now, evidence = getattr(block, field), {"block": name, "field": field, "was": show(was)}
                self.log.expect(UNTOUCHED, f"{name}.{field}", now, was, "block-marked", **evidence, now=show(now))


def _look(block: PhysicalTokenBlock) -> dict[str, Any]:
    """What nobody but its owners has a reason to change."""
    return {field: getattr(block, field) for field in (*FIELDS, "last_accessed", "computed")}


def _first_seen(names: Iterable[str]) -> list[str]:
    """Each name once."""
    seen: list[str] = []
    for name in names:
        if name not in seen:
            seen.append(name)
    return seen


def _row(names: Iterable[str]) -> str:
    return f"[{', '.join(names)}]"


def _tables_history(tables: dict[str, str], *calls: tuple[str, ...]) -> History:
    made = tuple(("table", key, tuple(row.split())) for key, row in tables.items())
    return History({"num_blocks": 3}, (*made, *(("distinct_blocks", *call) for call in calls)))


STEPS = (
    Step(
        exercise_id="01-fields",
        title="what a block says of itself",
        points=3,
        subject="PhysicalTokenBlock",
        writes=("__init__",),
        reference=(PhysicalTokenBlock.__init__,),
        properties=(GIVEN, NO_KEY, START, REFUSES, OWN_STATE, ONE_OBJECT),
        misconceptions={
            "field-left-out": "Every field is there from the start, also where nothing has happened yet: others read "
            "`{field}` of a new block, and yours has none.",
            "arguments-swapped": "The number comes before the size, as in the signature: `{block}.block_number` must "
            "be {expected}, and yours is {got}, which is its size.",
            "owner-from-the-start": "A new block stands in no block table yet: `ref_count` is the number of tables "
            "that hold it, so it starts at 0, and yours starts at 1.",
            "accessed-at-birth": "To be made is not to be used: `last_accessed` is -1, older than every time, until "
            "somebody reads the block, and yours is {got}.",
            "computed-at-birth": "Nothing has been written into a new block: `computed` is False until then, or a "
            "later request would skip work that nobody has done.",
            "key-made-up": "A block that was given no content key says -1, so that nobody finds it by its content: "
            "`{block}.block_hash` must be {expected}, and yours is {got}.",
            "covers-the-block": "`num_hashed_tokens` is how many tokens the content key covers, not how many fit: a "
            "block without a key says 0, and yours says {got}.",
            "key-dropped": "What a block is given it keeps, for chapter 4 makes blocks with a content key: "
            "`{block}.{field}` must be {expected}, and yours is {got}.",
            "shared-state": "A field belongs to one block, so set it on `self`: `{block}.{field}` was {expected}, and "
            "became {got} when something happened to another block.",
            "compared-by-looks": "A block is itself and no other, whatever its fields say: they change while it is the "
            "key of a dict, and two pools have a block of each number, so define no `__eq__` and no `__hash__`.",
            "number-zero-refused": "Blocks are numbered from 0, because the number is a row of a tensor: 0 is the "
            "first block of the pool, and yours refuses it.",
            "size-refused": "A block may hold any number of tokens from 1 up, be it small or no power of two: "
            "yours refuses block_size {size}.",
            "negative-number-accepted": "A tensor counts the row {number} from its end, so this block would be "
            "another one's memory: refuse a negative number with ValueError, do not make or mend the block.",
            "no-room-accepted": "A block of {size} tokens has room for nothing, and whoever divides by its size finds "
            "out later: refuse it with ValueError where it is made.",
            "other-error": "The error for an impossible block is ValueError, since that is what a caller waits for: "
            "yours raised {error}.",
        },
        world=_BlockWorld,
        examples=(
            _blocks_history(("__init__", "a", Device.GPU, 3, 16), ("__init__", "b", Device.GPU, -1, 16)),
            _blocks_history(("__init__", "a", Device.GPU, 3, 16, "key of 48 tokens", 48), ("use", "a")),
            _blocks_history(
                ("__init__", "a", Device.GPU, 3, 16, "a key", 16), ("__init__", "b", Device.GPU, 4, 16, "a key", 16)
            ),
            _blocks_history(("__init__", "a", Device.GPU, 3, 16, 0, 16)),
            _blocks_history(("__init__", "a", Device.CPU, 1, 24), ("__init__", "b", Device.CPU, 1, 0)),
            _blocks_history(("__init__", "a", Device.GPU, 0, 16), ("__init__", "b", Device.GPU, 0, 1)),
            _blocks_history(("__init__", "a", Device.GPU, 3, 1), ("__init__", "b", Device.GPU, 3, 1), ("use", "b")),
        ),
        setups=lambda rng: {"block_size": rng.choice((16, 24, 128))},
    ),
    Step(
        exercise_id="01-kv-bytes-per-block",
        title="bytes of a block",
        points=3,
        subject="kv_bytes_per_block",
        reference=(kv_bytes_per_block,),
        properties=(FACTORS, WHOLE, IMPOSSIBLE),
        misconceptions={
            "nothing-returned": "The caller divides the memory of a GPU by this number, so return it: yours returned "
            "None.",
            "values-forgotten": "A token leaves two vectors in each layer, a key and a value, and attention needs "
            "both: {expected:,} bytes, and yours is half of it.",
            "queries-cached": "Keys and values are kept, queries are not: a query is used in the step that computes "
            "it and never again, so count two vectors, not three.",
            "one-token-only": "These are the bytes of one token, and a block has room for {block_size}: {expected:,} "
            "bytes, and yours is {got}.",
            "one-layer-only": "Every layer has keys and values of its own, and a block has its row in all of them: "
            "{num_layers} layers take {expected:,} bytes, and yours counts one.",
            "one-head-only": "Every KV head has a key and a value of its own: {num_kv_heads} heads take {expected:,} "
            "bytes, and yours counts one.",
            "numbers-not-bytes": "These are the numbers in a block, and each of them takes {dtype_bytes} bytes: "
            "{expected:,}, and yours is {got}.",
            "two-bytes-assumed": "Not every cache keeps numbers of 2 bytes: here each takes {dtype_bytes}, as "
            "`dtype_bytes` says, so it is {expected:,} bytes, and yours is {got}.",
            "bits-not-bytes": "`dtype_bytes` is in bytes already, so there is no 8 in this product: {expected:,} "
            "bytes, and yours counts bits.",
            "another-unit": "The answer is in bytes, whatever reads better: memory is divided by it, so it is "
            "{expected:,}, and yours is {got}.",
            "not-whole": "Bytes are counted, so the answer is an int: nothing in this product has to be divided, and "
            "yours is {got}.",
            "impossible-size-answered": "A size below 1 is a mistake of the caller's, and an answer would hide it: "
            "{size}, so keep the lines that raise ValueError.",
        },
        world=_SizeWorld,
        examples=(
            _sizes_history((16, 32, 8, 128, 2)),
            _sizes_history((16, 30, 3, 64, 1), (16, 30, 3, 64, 4), (16, 30, 0, 64, 4)),
            _sizes_history((16, 30, 3, 64, 2), (16, 30, 3, 64, 1)),
            _sizes_history((1, 1, 1, 1, 1)),
        ),
        setups=_model_sizes,
    ),
    Step(
        exercise_id="01-identity",
        title="which blocks are one",
        points=4,
        subject="distinct_blocks",
        reference=(distinct_blocks,),
        properties=(ALL, ONCE, FIRST_SEEN, UNTOUCHED),
        misconceptions={
            "nothing-returned": "The blocks are the answer, so return the list: yours returned None.",
            "count-instead-of-blocks": "The caller gets the blocks and can count them: yours returned their number, "
            "{got}.",
            "numbers-instead-of-blocks": "A number does not say on which device the block is, nor who holds it: put "
            "the blocks in the list and not their numbers.",
            "blocks-copied": "A copy of a block is another block, which nobody's table holds: put the objects "
            "themselves in the list.",
            "shared-block-listed-twice": "A block that the tables hold more than once is still one block: `{twice}` "
            "is in your list more than once, and would be copied or counted as often.",
            "number-is-not-identity": "Every pool numbers its blocks from 0, so a number alone tells no block from "
            "another: `{missing}` has number {number} like one in your list, and is not that block.",
            "looks-alike": "Two objects that say the same of themselves are two blocks: `{missing}` looks like one in "
            "your list and lies in another pool, so compare the objects and not their fields.",
            "shared-block-left-out": "Distinct means each once, not those with one owner: `{missing}` stands in "
            "several tables and belongs in the list.",
            "only-shared-blocks": "Each block of the tables is wanted, not only the shared ones: `{missing}` stands "
            "in one table and belongs in the list.",
            "one-table-only": "All the tables are asked about: `{missing}` stands in another one than those that your "
            "list shows.",
            "order-lost": "The order is that of the tables, first seen first, so that the same tables always give the "
            "same list: a set forgets that order, and sorting makes another.",
            "table-changed": "To look at a table is not to change it: collect the blocks in a list of your own, since "
            "`{table}` is not what it was.",
            "table-handed-out": "The caller may change the list that it gets, and `{table}` would change with it: "
            "return a list of your own, also where one table has every block.",
            "block-marked": "To list a block is not to use it: `{block}.{field}` was {was}, and is {now} after your "
            "call, so leave every field as it was.",
            "owner-counted": "Your list is no block table and owns nothing: leave `{block}.ref_count` as it was.",
            "list-of-tables-expected": "The tables may come one at a time, from a generator, which has neither a "
            "length nor a first entry: go through them with one `for` and ask for no more.",
            "earlier-calls-remembered": "Each call is asked about its own tables: start with an empty list each time, "
            "made inside the function, for yours still knows what an earlier call has seen.",
            "walked-twice": "A generator can be walked through once, and what was looked at is gone the second time: "
            "`{missing}` stood in a table that your list no longer saw.",
        },
        world=_IdentityWorld,
        examples=(
            _tables_history({"a": "gpu_5 gpu_2", "b": "gpu_5 gpu_0", "c": "cpu_2 cpu_1"}, ("list", "a", "b", "c")),
            _tables_history(
                {"a": "gpu_5", "b": "gpu_2"}, ("list", "a", "b"), ("list", "a", "b"), ("generator", "a", "b")
            ),
            _tables_history({"a": "gpu_0", "b": f"cpu_0 gpu_0{SECOND_POOL} gpu_1"}, ("list", "a", "b")),
            _tables_history({"a": "", "b": "gpu_1 gpu_0"}, ("list", "a", "b"), ("list",)),
            _tables_history({"a": "gpu_1 gpu_0 gpu_1"}, ("list", "a")),
            _tables_history({"a": "gpu_1 gpu_0"}, ("list", "a")),
        ),
        setups=lambda rng: {"num_blocks": rng.randint(1, 5)},
    ),
)

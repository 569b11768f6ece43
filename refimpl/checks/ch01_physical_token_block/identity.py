"""01-identity: when two blocks are one.

Which objects are one is known from how the check made them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from refimpl.block import Device, PhysicalTokenBlock, distinct_blocks
from refimpl.checks.ch01_physical_token_block.fields import FIELDS
from refimpl.checks.step import History, Log, Names, Operation, Setup, Step, World, equal, one_line, show
from refimpl.checks.thoughts import only_one

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
    "used-blocks-left-out",
    "no further in a table",
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
        self.answers: list[tuple[Any, list[str]]] = []  # each answer, and what must stand in it still
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
        used = []
        for block_name in dict.fromkeys(row):
            if block_name not in self.blocks:
                device, number, *_ = block_name.split("_")
                block = PhysicalTokenBlock(Device[device.upper()], int(number), block_size=16)
                if block.block_number % 3 == 2:
                    block.last_accessed, block.computed = 7.5, True
                    used.append(block_name)
                self.blocks[block_name], self.looks[block_name] = block, _look(block)
            self.blocks[block_name].ref_count += 1
        self.tables[name] = list(row)
        self.given[name] = [self.blocks[block_name] for block_name in row]
        twin = any(block_name.endswith(SECOND_POOL) for block_name in row)
        self.log.note(f"{name} = {_row(row)}" + "    # GPU block 0 of another pool, too" * twin + self._used(used))

    def _used(self, names: list[str]) -> str:
        return f"    # used at 7.5: {', '.join(names)}" if names else ""

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
        for answer, was in self.answers:
            now, should = (
                [self._name_of(item) for item in answer],
                f"the list of an earlier call should still be {_row(was)}",
            )
            self.log.hold(ALL, now == was, should, f"it is {one_line(_row(now))}", "earlier-calls-remembered")
        if wanted:
            handed_out = next((name for name, table in self.given.items() if table is got), None)
            should, but = "it should return a list of its own", f"it returned `{handed_out}` itself"
            self.log.hold(UNTOUCHED, handed_out is None, should, but, "table-handed-out", table=handed_out)
            self._check_untouched()
            self.answered.append(names)
            self.answers.append((got, wanted))

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
            thought = None if seen == _no_further(rows) else "order-lost"
            self.log.hold(FIRST_SEEN, seen == wanted, should, but, thought, **evidence)

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
            "no further in a table": seen == _no_further(rows),
            "used-blocks-left-out": seen == [name for name in wanted if not self.looks[name]["computed"]],
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


def _no_further(rows: list[list[str]]) -> list[str]:
    """What is listed by who leaves a table at a block that has been seen."""
    seen: list[str] = []
    for row in rows:
        for name in row:
            if name in seen:
                break
            seen.append(name)
    return seen


def _row(names: Iterable[str]) -> str:
    return f"[{', '.join(names)}]"


def _tables_history(tables: dict[str, str], *calls: tuple[str, ...]) -> History:
    made = tuple(("table", key, tuple(row.split())) for key, row in tables.items())
    return History({"num_blocks": 3}, (*made, *(("distinct_blocks", *call) for call in calls)))


STEP = Step(
    exercise_id="01-identity",
    title="which blocks are one",
    points=4,
    subject="distinct_blocks",
    reference=(distinct_blocks,),
    properties=(ALL, ONCE, FIRST_SEEN, UNTOUCHED),
    misconceptions={
        "nothing-returned": "The blocks are the answer, so return the list: yours returned None.",
        "count-instead-of-blocks": "The caller gets the blocks and can count them: yours returned their number, {got}.",
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
        "used-blocks-left-out": "What a block says of itself is no sign that your list has it: `{missing}` had been "
        "used before your call, so keep what you have met in a container of your own.",
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
        _tables_history({"a": "gpu_5", "b": "gpu_2"}, ("list", "a", "b"), ("list", "a", "b"), ("generator", "a", "b")),
        _tables_history({"a": "gpu_0", "b": f"cpu_0 gpu_0{SECOND_POOL} gpu_1"}, ("list", "a", "b")),
        _tables_history({"a": "", "b": "gpu_1 gpu_0"}, ("list", "a", "b"), ("list",)),
        _tables_history({"a": "gpu_1 gpu_0 gpu_1"}, ("list", "a")),
        _tables_history({"a": "gpu_1 gpu_0"}, ("list", "a")),
    ),
    setups=lambda rng: {"num_blocks": rng.randint(1, 5)},
)

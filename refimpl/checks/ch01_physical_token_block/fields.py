"""01-fields: what a block says of itself.

The account is a plain record of each block's fields.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from functools import partial
from typing import Any

from refimpl.block import Device, PhysicalTokenBlock
from refimpl.checks.step import History, Log, Names, Operation, Setup, Step, Violation, World, equal, show
from refimpl.checks.thoughts import returns

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
        construct = partial(_construct, self.subject)
        refused = ValueError, "number or size"
        try:
            block = self.log.call(f"{name} = {_call(arguments)}", construct, *arguments, raises=refused, size=size)
        except Violation as violation:
            violation.misconception = self._refusal_fault(device, number, size)
            raise
        values = (device, number, size, block_hash, num_hashed_tokens)
        self.blocks[name], self.records[name] = block, {**dict(zip(FIELDS, values, strict=True)), **START_VALUES}
        for field in FIELDS:
            self._check_field(GIVEN if field in FIELDS[: len(arguments)] else NO_KEY, name, field)
        for field in START_VALUES:
            self._check_field(START, name, field)
        self._check_identity(name)

    def _refusal_fault(self, device: Device, number: int, size: int) -> str | None:
        """What the refusal of a good block tells, where only its number or only its size can be the reason."""
        other_number = returns(_construct, self.subject, device, number + 1, size)
        other_size = returns(_construct, self.subject, device, number, 16)
        if number == 0 and other_number and not other_size:
            zero_was_made = any(record["block_number"] == 0 for record in self.records.values())
            return None if zero_was_made else "number-zero-refused"
        return "size-refused" if other_size and not other_number else None

    def _check_field(self, property_name: str, name: str, field: str) -> None:
        got, expected = self._read(name, field), self.records[name][field]
        fault = _field_fault(property_name, field, got)
        if field == "block_number" and self._is_swapped(name, "block_number", "block_size"):
            fault = "arguments-swapped"
        if field == "block_hash" and self._is_swapped(name, "block_hash", "num_hashed_tokens"):
            fault = None
        self._expect(property_name, name, field, got, expected, fault)

    def _is_swapped(self, name: str, *pair: str) -> bool:
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


STEP = Step(
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
            ("__init__", "a", Device.GPU, 3, 256, "a key", 16), ("__init__", "b", Device.GPU, 9000, 16, "a key", 16)
        ),
        _blocks_history(("__init__", "a", Device.GPU, 3, 16, 0, 16)),
        _blocks_history(
            ("__init__", "a", Device.CPU, 1, 20),
            ("__init__", "b", Device.CPU, 1, 0),
            ("__init__", "c", Device.CPU, -1, 20),
        ),
        _blocks_history(("__init__", "a", Device.GPU, 0, 16), ("__init__", "b", Device.GPU, 0, 1)),
        _blocks_history(("__init__", "a", Device.GPU, 3, 1), ("__init__", "b", Device.GPU, 3, 1), ("use", "b")),
    ),
    setups=lambda rng: {"block_size": rng.choice((16, 24, 128))},
)

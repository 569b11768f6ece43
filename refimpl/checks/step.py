"""What an exercise step is made of: properties that must hold, misconceptions it can name, a world that drives both.

A `World` holds the learner's object and, beside it, an account of what must be true. It performs one operation at a
time on both and compares them after each. Worlds are written a chapter at a time; `engine.py` plays histories on them.
"""

from __future__ import annotations

import contextlib
import importlib
import operator
import random
import re
import reprlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from string import ascii_lowercase
from typing import Any, NoReturn, Self

Operation = tuple[Any, ...]  # name of the operation, then its arguments: keys of blocks or tables, or numbers
Setup = dict[str, int]  # the world's sizes, 1 or more; those that begin with num_ are cut down with the history

RUNS = "runs without an error"  # a property of every step


@dataclass(frozen=True, slots=True)
class History:
    """One life of a world: its `setup`, and the operations that are done to it, in order."""

    setup: Setup
    operations: tuple[Operation, ...]

    @classmethod
    def of(cls, setup: Setup, *operations: Operation) -> History:
        """A history with its operations one after the other.

        >>> History.of({}, ("fork", "a", 0)).operations
        (('fork', 'a', 0),)
        """
        return cls(setup, operations)

    @classmethod
    def read(cls, setup: Setup, *operations: str) -> History:
        """A history from operations in words: digits are numbers, everything else are names.

        >>> History.read({}, "fork a 0", "free a").operations
        (('fork', 'a', 0), ('free', 'a'))
        """
        return cls(setup, tuple(tuple(map(_argument, operation.split())) for operation in operations))


def _argument(word: str) -> int | str:
    return int(word) if word.isdigit() else word


class LoadedLater:
    """Functions of refimpl by module and name, loaded when they are looked at: until a check runs, no torch is needed.

    >>> [function.__name__ for function in LoadedLater("block:locate", "block:slots")]
    ['locate', 'slots']
    """

    def __init__(self, *places: str) -> None:
        self._places = [place.split(":") for place in places]

    def __iter__(self) -> Iterator[Callable[..., Any]]:
        return (getattr(importlib.import_module(f"refimpl.{module}"), name) for module, name in self._places)


def _runs_anywhere() -> None:
    return None


@dataclass(frozen=True, slots=True)
class Step:
    """One exercise step.

    Args:
        exercise_id: chapter number and name, as in the notebook.
        title: a few words for tables.
        points: marks for all properties together.
        subject: what the learner passes to `check`: the name of a class or function.
        writes: the methods that the learner writes here; empty when the subject is a function.
        through: the methods by which a caller reaches what is written here, where that is a part of another method
            (`_copy_on_write` of `append_slots`): the check calls these, and a design that has no such part passes too.
        needs: other methods of the subject that the check calls.
        after: steps on whose answers this one stands; it is checked once they pass.
        cannot_run: says in a sentence why this machine cannot check the step, or None where it can.
        reference: refimpl's functions that answer this step, refused while the check runs.
        properties: everything that the world compares, apart from `RUNS`, which every step has.
        misconceptions: id -> the sentence that corrects the thought; {names} are filled in from the evidence.
        world: makes a world from (subject, setup, log). Its operations are named for the method they call.
        examples: histories from the task's text, played first; then the shortest ones that matter. The first call of
            the learner's code in the first one must be one that returns: it tells a stub.
        setups: draws the sizes of a random history.
        random_histories: so many are played, however long they take, for a step where one takes long: what is said of
            a right answer is then the same on a slow machine. None: as many as half of the time allows, 60 at most.
    """

    exercise_id: str
    title: str
    points: int
    subject: str
    reference: Iterable[Callable[..., Any]]
    properties: tuple[str, ...]
    misconceptions: Mapping[str, str]
    world: Callable[[Any, Setup, Log], World]
    examples: tuple[History, ...]
    setups: Callable[[random.Random], Setup]
    writes: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    through: tuple[str, ...] = ()
    cannot_run: Callable[[], str | None] = _runs_anywhere
    random_histories: int | None = None

    @property
    def asks_for(self) -> tuple[str, ...]:
        """The methods, or the function, that the learner writes here."""
        return self.writes or (self.subject,)

    @property
    def calls(self) -> tuple[str, ...]:
        """The methods, or the function, by which the check reaches what the learner writes here."""
        return self.through or self.asks_for


class World(ABC):
    """The learner's object and the account beside it.

    Args:
        subject: what the learner passes to `check`.
        setup: the world's sizes.
        log: where calls are written down and comparisons counted.
    """

    replaying = False  # whether a history is played again on the side, to see what a thought explains

    def __init__(self, subject: Any, setup: Setup, log: Log) -> None:
        self.subject, self.setup, self.log = subject, setup, log

    @abstractmethod
    def choices(self) -> Iterable[Operation]:
        """The operations that make sense now, for a random history to choose from."""

    def possible(self, operation: Operation) -> bool:
        """Whether the operation makes sense now; the shrinker leaves out one that does not."""
        return True

    def perform(self, operation: Operation) -> None:
        """Do it to both and compare: the method of the operation's name, behind an underscore, is handed its arguments.

        Raises Violation, or whatever the learner's code raises.
        """
        verb, *arguments = operation
        perform_it = getattr(self, f"_{verb}")
        perform_it(*arguments)

    def replayed(self, history: History) -> tuple[Self, bool]:
        """Another world, in which this history has been played as far as it goes; whether it went to its end."""
        world = type(self)(self.subject, history.setup, Log())
        world.replaying = True
        with contextlib.suppress(Exception):  # a wrong answer ends it, too: what was seen up to then counts
            for operation in history.operations:
                if world.possible(operation):
                    world.perform(operation)
            return world, True
        return world, False


class Names:
    """What the learner reads for the things that operations speak of: a, b, c … in order of appearance.

    An operation has a key of its own for each thing, so the shrinker can leave one out and the others stay what they
    are; the names close up.

    >>> names = Names("table_")
    >>> names.add(7), names.add(3), names[7], names.new_key()
    ('table_a', 'table_b', 'table_a', 2)
    """

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix
        self._name_of: dict[Hashable, str] = {}

    def __getitem__(self, key: Hashable) -> str:
        return self._name_of[key]

    def __contains__(self, key: Hashable) -> bool:
        return key in self._name_of

    def __iter__(self) -> Iterator[Hashable]:
        return iter(self._name_of)

    def items(self) -> Iterable[tuple[Hashable, str]]:
        """Each key with its name, oldest first."""
        return self._name_of.items()

    def new_key(self) -> Hashable:
        """A key for a random operation that makes one more thing."""
        return len(self._name_of)

    def add(self, key: Hashable) -> str:
        """The name of a new thing."""
        turn, letter = divmod(len(self._name_of), len(ascii_lowercase))
        self._name_of[key] = f"{self.prefix}{ascii_lowercase[letter]}{turn or ''}"
        return self._name_of[key]


class Violation(Exception):
    """A property does not hold. `should` and `but` are the two halves of the sentence that says so.

    `evidence` fills in the sentence of the misconception, if it tells one.
    """

    def __init__(self, name: str, should: str, but: str, misconception: str | None, evidence: dict[str, Any]) -> None:
        super().__init__(name)
        self.name, self.should, self.but = name, should, but
        self.misconception, self.evidence = misconception, evidence


@dataclass(slots=True)
class Log:
    """What happens while histories are played: the lines of the current one, and which properties were compared.

    `lines` is the current history as the learner would type it; `tally` counts comparisons over all histories, each
    from its first call of what this step asks for: what held before that is no merit of the answer.
    """

    lines: list[str] = field(default_factory=list)
    asking: str = ""  # the question that is being put to the learner's object after an operation
    reached: bool = False  # whether the current history has called what the step asks for
    tally: dict[str, int] = field(default_factory=dict)  # property -> comparisons made
    broken: set[str] = field(default_factory=set)  # properties that did not hold at least once
    histories: int = 0  # played so far

    def note(self, line: str) -> None:
        """Something the check itself did, shown as a line of the history."""
        self.lines.append(line)

    def call(
        self,
        line: str,
        function: Callable[..., Any],
        *args: Any,
        raises: tuple[type[Exception], str] | None = None,
        **evidence: Any,
    ) -> Any:
        """Call the learner's `function` with `args` where it must not raise, and return what it returns.

        `raises` is an error and the misconception it tells, whose sentence `evidence` fills in.
        """
        self.lines.append(line)
        self._count(RUNS)
        expected, misconception = raises or ((), None)
        try:
            return function(*args)
        except NotImplementedError:
            raise
        except expected as error:
            evidence["error"] = said(error)
            self._break(RUNS, "it should raise nothing", f"it raised {said(error)}", misconception, evidence)

    def ask(self, question: str, function: Callable[[], Any]) -> Any:
        """The answer of the learner's `function` to a question that is no operation; an error in it is told as such."""
        self.asking = question
        answer = function()
        self.asking = ""
        return answer

    def refuse(
        self,
        name: str,
        line: str,
        function: Callable[..., Any],
        *args: Any,
        returned: str | None,
        other_error: str | None,
        **evidence: Any,
    ) -> None:
        """Call the learner's `function` with `args` where it must raise ValueError.

        `returned` and `other_error` are the misconceptions it tells if it returns, or raises another error; `evidence`
        fills in their sentences.
        """
        self.lines.append(line)
        self._count(name)
        try:
            result = function(*args)
        except ValueError:
            return
        except Exception as error:  # noqa: BLE001  (any other than ValueError is the answer to report)
            evidence["error"] = type(error).__name__
            self._break(name, "it should raise ValueError", f"it raised {said(error)}", other_error, evidence)
        self._break(name, "it should raise ValueError", f"it returned {show(result)}", returned, evidence)

    def expect(
        self,
        name: str,
        what: str,
        got: Any,
        expected: Any,
        misconception: str | None = None,
        /,
        **evidence: Any,
    ) -> None:
        """Property `name`: `what` was `got` and is `expected`; `evidence` fills the misconception's sentence."""
        self._count(name)
        if not equal(got, expected):
            self._break(name, f"{what} should be {show(expected)}", f"it is {show(got)}", misconception, evidence)

    def hold(
        self,
        name: str,
        holds: bool,
        should: str,
        but: str,
        misconception: str | None = None,
        /,
        **evidence: Any,
    ) -> None:
        """Property `name`, judged by the world itself and said in its words: what `should` be, `but` what is.

        `evidence` fills the misconception's sentence.
        """
        self._count(name)
        if not holds:
            self._break(name, should, but, misconception, evidence)

    def take_back(self, tally: Mapping[str, int]) -> None:
        """What was compared since the tally was this one is no merit of the answer, but for `RUNS`."""
        runs = {name: count for name, count in self.tally.items() if name == RUNS}
        self.tally = {**tally, **runs}

    def _count(self, name: str) -> None:
        if self.reached:
            self.tally[name] = self.tally.get(name, 0) + 1

    def _break(self, name: str, should: str, but: str, misconception: str | None, evidence: dict[str, Any]) -> NoReturn:
        self.broken.add(name)
        raise Violation(name, should, but, misconception, evidence)


_NUMPY_BOOLS = {("numpy", "bool"), ("numpy", "bool_")}  # which are no ints, as Python's own are


def equal(got: Any, expected: Any) -> bool:
    """Whether what was `got` equals what was `expected`, which no strange object can talk its way through or break."""
    if isinstance(expected, Enum):
        return got is expected
    try:
        if isinstance(expected, bool) and (type(got).__module__, type(got).__name__) in _NUMPY_BOOLS:
            return bool(got) is expected
        if isinstance(expected, int) and not isinstance(got, float):
            return int.__eq__(operator.index(got), expected)
        if isinstance(expected, list | tuple):
            same_shape = isinstance(got, type(expected)) and len(got) == len(expected)
            return same_shape and all(map(equal, got, expected))
        return bool(got == expected)
    except Exception:  # noqa: BLE001  (whatever is raised on the way, the answer is: not equal)
        return False


def is_count(got: Any, expected: int) -> bool:
    """Whether what was `got` is the `expected` number and can count: not 3.0, which `range` does not take."""
    return not isinstance(got, float) and equal(got, expected)


def is_whole(value: Any) -> bool:
    """Whether it is a whole number, of whatever type that counts."""
    try:
        operator.index(value)
    except TypeError:
        return False
    return True


def same_objects(given: Sequence[Any], wanted: Sequence[Any]) -> bool:
    """Whether what was `given` holds the very objects that are `wanted`, in the same order."""
    return len(given) == len(wanted) and all(map(operator.is_, given, wanted))


_repr = reprlib.Repr()
_repr.maxother = _repr.maxstring = 80
_LARGE = 10**9


def show(value: Any) -> str:
    """A short repr in one line, without memory addresses: the same in every run."""
    if type(value) is int and -_LARGE < value < _LARGE:
        return str(value)  # most of what is shown, and that often before anything is wrong
    try:
        text = str(value) if isinstance(value, Enum) else _repr.repr(value)
    except Exception as error:  # noqa: BLE001  (a learner's __repr__ may raise anything)
        text = f"an object of type {type(value).__name__} whose repr raises {type(error).__name__}"
    return one_line(text)


def said(error: BaseException) -> str:
    """An error's type and the first line of its text."""
    try:
        text = str(error).strip().partition("\n")[0]
    except Exception:  # noqa: BLE001  (a learner's __str__ may raise anything)
        text = ""
    return one_line(f"{type(error).__name__}: {text}" if text else type(error).__name__)


def counted(number: int, thing: str) -> str:
    """So many things, in words.

    >>> counted(1, "block"), counted(0, "block")
    ('1 block', '0 blocks')
    """
    return f"{number} {thing}{'' if number == 1 else 's'}"


def one_line(text: str, limit: int = 200) -> str:
    """The text without line breaks, memory addresses and what cannot be printed, cut at `limit` characters.

    >>> one_line("<Pool object at 0x7f3a2b1c4d50>")
    '<Pool object>'
    """
    text = re.sub(r"( at)? 0x[0-9a-fA-F]{6,}", "", text[: 4 * limit])
    text = "".join(character if character.isprintable() else " " for character in text)
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 1] + "…"

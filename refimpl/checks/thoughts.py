"""Thoughts: wrong ways to do what a step asks for, named when one alone explains what the learner's code did.

`Theories` are for questions that are put to one object again and again: each answer drops those that it contradicts.
`ThoughtWorld` is for functions that are called with fresh arguments: every call is a case, and what came of it is kept;
so is what comes of the step's examples. A thought that would have done something else even once, in a case no more
special than the one at hand, is none.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from refimpl.checks.step import RUNS, History, Log, Operation, Setup, Violation, World, equal, said

TELLING = "telling"  # in the setup of an example: its numbers are such that no two thoughts give the same answer

Did = tuple[str, Any]  # "raised" and the error's type, or "did" and what came out


def only_one(names: Iterable[str]) -> str | None:
    """The name, where all are the same one; None for several and for none.

    >>> only_one(["order-lost", "order-lost"]), only_one(["order-lost", "hash-believed"])
    ('order-lost', None)
    """
    found = set(names)
    return found.pop() if len(found) == 1 else None


def asked(question: Callable[..., Any], *arguments: Any) -> Any:
    """What the learner's code answers where a name is looked for; None when it raises."""
    try:
        return question(*arguments)
    except Exception:  # noqa: BLE001  (a learner's code may raise anything, and this only looks)
        return None


def returns(question: Callable[..., Any], *arguments: Any) -> bool:
    """Whether the learner's code answers at all."""
    return asked(lambda: (question(*arguments),)) is not None


class Theories:
    """Wrong ways to answer a question, and which of them every answer so far bears out; several may share a name."""

    def __init__(self, theories: Sequence[tuple[str, Callable[..., Any]]]) -> None:
        self._theories = theories
        self._said: dict[int, Any] = {}
        self.left = set(range(len(theories)))

    def ask(self, *question: Any) -> None:
        """What each of those that are left says to this."""
        self._said = {i: self._theories[i][1](*question) for i in self.left}

    def hear(self, got: Any) -> None:
        """The learner's answer to what was asked last: whoever says otherwise drops out."""
        self.left = {i for i in self.left if equal(got, self._said[i])}

    @property
    def name(self) -> str | None:
        """The one misconception that is left."""
        return only_one(self._theories[i][0] for i in self.left)


@dataclass(frozen=True, slots=True)
class Thought:
    """A wrong way to do it, by its `name`: what it `does` with a case is what comes out, or the error it ends in."""

    name: str
    does: Callable[[Any], Any]

    def did(self, case: Any) -> Did:
        """What comes of it."""
        try:
            return "did", self.does(case)
        except Exception as error:  # noqa: BLE001  (the thought's code ends in it, as the learner's would)
            return "raised", type(error).__name__


class TellingWorld(World):
    """A function of the learner's, whose answers tell a thought where the setup of the history says so.

    `setup` and `log` are as in `World`.
    """

    def __init__(self, subject: Any, setup: Setup, log: Log) -> None:
        super().__init__(subject, setup, log)
        self.telling = TELLING in setup
        self.answered = False  # rightly; before that, what comes where a refusal or nothing is due tells no thought


class ThoughtWorld(World):
    """A function of the learner's, called with fresh arguments; each call is a case, and has an outcome."""

    thoughts: tuple[Thought, ...] = ()
    examples: tuple[History, ...] = ()  # of the step

    def __init__(self, subject: Any, setup: Setup, log: Log) -> None:
        super().__init__(subject, setup, log)
        self.seen: list[tuple[Any, Did]] = []  # case -> what the learner's code did
        self.answered = False  # rightly; before that, refusals and what needs no work are no merit
        self.refusing = False

    @abstractmethod
    def calls(self) -> Iterable[Operation]:
        """What a random history may ask, possible now or not."""

    def choices(self) -> Iterable[Operation]:
        """Those of `calls` that are possible now."""
        return [operation for operation in self.calls() if self.possible(operation)]

    def call(self, shows: Iterable[str], line: str, case: Any, *args: Any, **evidence: Any) -> Any:
        """Call the learner's function with `args` where it must not raise, and return what it returns.

        The caller adds what it did to `seen`. `shows` are the properties that this call is to show: after an error they
        do not hold. `line` is the call as the learner would type it; `evidence` fills in the thought's sentence.
        """
        self.log.note(line)
        self.log.hold(RUNS, True, "", "")
        try:
            return self.subject(*args)
        except NotImplementedError:
            raise
        except Exception as error:
            self.seen.append((case, ("raised", type(error).__name__)))
            self.log.broken.update(shows)
            thought = self.thought()
            if thought is not None:
                evidence["error"] = said(error)
                self.log.hold(RUNS, False, "it should raise nothing", f"it raised {said(error)}", thought, **evidence)
            raise

    def refuse(self, name: str, line: str, *args: Any, returned: str, other_error: str, **evidence: Any) -> None:
        """Call the learner's function with `args` where it must raise ValueError, which is the property `name`.

        `line`, `returned`, `other_error` and `evidence` are as for `Log.refuse`. What it does instead tells a thought
        only where all that the examples ask for is answered rightly.
        """
        self.refusing = True
        try:
            self.log.refuse(name, line, self.subject, *args, returned=returned, other_error=other_error, **evidence)
        except Violation as violation:
            if self.replaying or not all(map(self._is_answered, self.examples)):
                violation.misconception = None
            raise
        self.refusing = False

    def traits(self, case: Any) -> frozenset[str]:
        """What is special about a case; none in one that every thought about the plain work shows in."""
        return frozenset()

    def thought(self) -> str | None:
        """The one thought that explains the last case, and all that are no more special, here and in the examples.

        Other cases may show another mistake beside it, and do not count.
        """
        if self.replaying:
            return None
        special = self.traits(self.seen[-1][0])
        left = self._explaining(self.thoughts, self.seen, special)
        for example in self.examples:
            left = self._explaining(left, self._seen_in(example), special) if left else left
        return only_one(thought.name for thought in left)

    def _explaining(
        self, thoughts: Iterable[Thought], seen: list[tuple[Any, Did]], special: frozenset[str]
    ) -> tuple[Thought, ...]:
        compared = [(case, did) for case, did in seen if self.traits(case) <= special]
        return tuple(thought for thought in thoughts if all(thought.did(case) == did for case, did in compared))

    def _seen_in(self, history: History) -> list[tuple[Any, Did]]:
        """What the learner's code does in this history, up to the first thing that is wrong."""
        return self.replayed(history)[0].seen

    def _is_answered(self, history: History) -> bool:
        """Whether everything is right in this history but perhaps a refusal."""
        world, whole = self.replayed(history)
        return whole or world.refusing

"""Chapter 12: what a log says, who makes room, which block size costs least, what a hash does not prove.

Each account is one of the plainest kind: a request's own life for the log, lengths and notes for the victim, blocks
that are filled up one after the other for the block size, a dictionary of whole contents for the index. Beside it stand
theories, which answer as somebody would who thinks so. A wrong answer is named when one thought alone explains it and
the answers to the probes, which are questions that no two thoughts answer alike.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from numbers import Real
from typing import Any

from refimpl.checks.step import History, Log, Names, Operation, Setup, Step, World, counted, equal, show
from refimpl.scheduler import SPEED_WINDOW, Decision
from refimpl.sequence import Sequence, SequenceGroup, SequenceStatus
from refimpl.simulation.diagnosis import BlockIndex, BlockSizes, DecisionLog, LongestSlowest


def _named(answers: Callable[[], list[Any]], theories: Iterable[tuple[str, list[Any]]]) -> str | None:
    """The thought behind a learner's answers: the one whose answers are the same, each of them.

    `answers` are asked for now, and may raise; several theories may share a name.
    """
    try:
        given = answers()
    except Exception:  # noqa: BLE001  (code that raises on other questions is of another kind)
        return None
    names = {name for name, wanted in theories if _alike(given, wanted)}
    return names.pop() if len(names) == 1 else None


def _alike(given: Any, wanted: Any) -> bool:
    """Whether two answers are the same: dictionaries without their zeros, fractions to within rounding."""
    if isinstance(wanted, list):
        return len(given) == len(wanted) and all(map(_alike, given, wanted))
    if isinstance(wanted, dict):
        return isinstance(given, Mapping) and equal(_without_zeros(given), wanted)
    if isinstance(wanted, Fraction):
        is_number = isinstance(given, Real) and not isinstance(given, bool)
        return is_number and abs(float(given) - float(wanted)) <= 1e-9 * max(1.0, abs(float(wanted)))
    return equal(given, wanted) and not isinstance(given, bool)


def _without_zeros(found: Mapping[Any, Any]) -> dict[Any, Any]:
    """What was counted; a request counted with 0 might as well be left out."""
    return {name: number for name, number in found.items() if not equal(number, 0)}


# 12-read-the-log


SHORT = "stays of at most so many steps are counted, request by request"
LONG = "longer stays, and those that began before the log, are not counted"
AGAIN = "tokens that were computed before are counted where they are computed again"
ONCE = "what is computed for the first time is no lost work"
AWAY = "the longest absence of each request that was sent away"
STILL_AWAY = "an absence that has not ended lasts up to the end of the log"
LOG_KEPT = "the log stays as it was"

COMES_IN, IS_SENT_AWAY = ("prefill", "swap in"), ("recompute", "swap out")
NEXT = {  # what can happen to a request, by what happened last; "" for one that the log has not named
    "": ("prefill", "swap in", "recompute", "swap out", "ignore", "wait"),
    "prefill": ("recompute", "swap out", "abort"),
    "swap in": ("recompute", "swap out", "abort"),
    "recompute": ("prefill", "ignore", "wait"),
    "swap out": ("swap in", "ignore", "wait"),
    "abort": (),
    "ignore": (),
}


@dataclass(frozen=True, slots=True)
class _Event:
    """One decision about one request: in which step, and of how many tokens where it is a prefill."""

    step: int
    action: str
    tokens: int


@dataclass(frozen=True, slots=True)
class _Lives:
    """A log, sorted by request: each one's events but for its waits, and the number of steps."""

    of: dict[str, list[_Event]]
    num_steps: int

    def pairs(self, first: tuple[str, ...], second: tuple[str, ...]) -> Iterator[tuple[str, _Event, _Event]]:
        """Each request's events that follow one another: one of `first`, then one of `second`."""
        for name, events in self.of.items():
            for one, other in zip(events, events[1:], strict=False):
                if one.action in first and other.action in second:
                    yield name, one, other

    def still_away(self) -> Iterator[tuple[str, int]]:
        """Requests that the log leaves away, and for how many steps."""
        for name, events in self.of.items():
            if events and events[-1].action in IS_SENT_AWAY:
                yield name, self.num_steps - events[-1].step


def _count(names: Iterable[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for name in names:
        found[name] = found.get(name, 0) + 1
    return found


def _longest(absences: Iterable[tuple[str, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, steps in absences:
        found[name] = max(found.get(name, 0), steps)
    return found


def _summed(absences: Iterable[tuple[str, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, steps in absences:
        found[name] = found.get(name, 0) + steps
    return found


RETURNS = (*COMES_IN, "ignore")


def _stays(lives: _Lives, within: int, first: tuple[str, ...] = COMES_IN, then: tuple[str, ...] = IS_SENT_AWAY) -> Any:
    """The account of short stays; with other actions, a theory."""
    return _count(name for name, one, other in lives.pairs(first, then) if other.step - one.step <= within)


def _recomputed(lives: _Lives, newest: int = 1, after: tuple[str, ...] = ("recompute",)) -> int:
    """The account of lost work; with another number of tokens that are new in a prefill, a theory."""
    return sum(other.tokens - newest for _, _, other in lives.pairs(after, ("prefill",)))


def _absences(lives: _Lives, sent_away: tuple[str, ...] = IS_SENT_AWAY, back: tuple[str, ...] = RETURNS) -> Any:
    """Each absence that has ended."""
    return [(name, other.step - one.step) for name, one, other in lives.pairs(sent_away, back)]


def _from_the_first(lives: _Lives, within: int) -> dict[str, int]:
    """Short stays of somebody who never starts the clock anew."""
    found = []
    for name, events in lives.of.items():
        began = next((event.step for event in events if event.action in COMES_IN), None)
        leaving = [event.step for event in events if event.action in IS_SENT_AWAY]
        found += [name for step in leaving if began is not None and 0 <= step - began <= within]
    return _count(found)


def _leavings(lives: _Lives, actions: tuple[str, ...] = IS_SENT_AWAY) -> dict[str, int]:
    return _count(name for name, events in lives.of.items() for event in events if event.action in actions)


def _times(lives: _Lives) -> int:
    return sum(1 for _ in lives.pairs(("recompute",), ("prefill",)))


def _prefilled(lives: _Lives, newest: int = 0) -> int:
    return sum(event.tokens - newest for events in lives.of.values() for event in events if event.action == "prefill")


def _seen_before(lives: _Lives) -> int:
    """Lost work to somebody who takes the first prefill in the log for the first one."""
    prefills = ([event.tokens for event in events if event.action == "prefill"] for events in lives.of.values())
    return sum(tokens - 1 for found in prefills for tokens in found[1:])


def _last_absence(lives: _Lives) -> dict[str, int]:
    return dict([*_absences(lives), *lives.still_away()])


def _ignored_waits_on(lives: _Lives) -> dict[str, int]:
    """Absences of somebody for whom only blocks end one."""
    ended = ((name, lives.num_steps - one.step) for name, one, _ in lives.pairs(IS_SENT_AWAY, ("ignore",)))
    return _longest([*_absences(lives, back=COMES_IN), *lives.still_away(), *ended])


StayTheory = Callable[[_Lives, int], Any]
STAYS: tuple[tuple[str, StayTheory], ...] = (
    ("long-stays-counted", lambda lives, within: _leavings(lives)),
    ("long-stays-counted", lambda lives, within: _stays(lives, 10**9)),
    ("limit-left-out", lambda lives, within: _stays(lives, within - 1)),
    ("only-swaps", lambda lives, within: _stays(lives, within, ("swap in",), ("swap out",))),
    ("only-swaps", lambda lives, within: _stays(lives, within, COMES_IN, ("swap out",))),
    ("absences-for-stays", lambda lives, within: _stays(lives, within, IS_SENT_AWAY, COMES_IN)),
    ("absences-for-stays", lambda lives, within: _stays(lives, within, ("swap out",), ("swap in",))),
    ("clock-not-started-anew", _from_the_first),
    ("one-number-for-all", lambda lives, within: sum(_stays(lives, within).values())),
)
RECOMPUTED: tuple[tuple[str, Callable[[_Lives], Any]], ...] = (
    ("first-prefill-counted", _prefilled),
    ("first-prefill-counted", lambda lives: _prefilled(lives, newest=1)),
    ("newest-token-counted", lambda lives: _recomputed(lives, newest=0)),
    ("log-for-life", _seen_before),
    ("times-for-tokens", _times),
    ("times-for-tokens", lambda lives: sum(_leavings(lives, ("recompute",)).values())),
)
ABSENCES: tuple[tuple[str, Callable[[_Lives], Any]], ...] = (
    ("only-those-who-came-back", lambda lives: _longest(_absences(lives))),
    ("only-those-who-came-back", lambda lives: _longest(_absences(lives, back=COMES_IN))),
    ("last-step-not-over", lambda lives: _longest([*_absences(lives), *((n, s - 1) for n, s in lives.still_away())])),
    ("last-not-longest", _last_absence),
    ("absences-added-up", lambda lives: _summed([*_absences(lives), *lives.still_away()])),
    ("recompute-is-no-absence", lambda lives: _longest(_swapped_only(lives))),
    ("ignored-waits-on", _ignored_waits_on),
    ("times-for-steps", _leavings),
)


def _swapped_only(lives: _Lives) -> list[tuple[str, int]]:
    away = [(name, steps) for name, steps in lives.still_away() if lives.of[name][-1].action == "swap out"]
    return [*_absences(lives, ("swap out",)), *away]


WITHIN = (0, 1, 2, 4)


class _LogWorld(World):
    """A log that grows by a decision at a time, and three questions about what there is of it.

    Operations: (action, key, steps) or ("prefill", key, steps, tokens), a decision so many steps after the last one;
    ("quiet", steps); and the questions, of which ("short_stays", within) has an argument.
    """

    def __init__(self, subject: Any, setup: Setup, log: Log) -> None:
        self.subject, self.log, self.names = subject, log, Names()
        self.steps: list[list[Decision]] = [[]]
        self.lives = _Lives({}, 1)
        self.last: dict[Hashable, str] = {}  # key -> what happened last, waits aside

    def choices(self) -> Iterable[Operation]:
        return filter(self.possible, self._all_choices())

    def _all_choices(self) -> Iterator[Operation]:
        gaps = (0, 1, 1, 2, 3, 5)
        for key in [*(key for key, _ in self.names.items()), self.names.new_key()]:
            for action in NEXT[self.last.get(key, "")]:
                yield from ((action, key, gap, *[20 + 5 * gap] * (action == "prefill")) for gap in gaps)
        yield from (("quiet", gap) for gap in (1, 4))
        for _ in range(6):
            yield from (("short_stays", within) for within in WITHIN)
            yield from (("recomputed_tokens",), ("longest_absences",)) * 4

    def possible(self, operation: Operation) -> bool:
        verb, *arguments = operation
        if verb in ("quiet", "short_stays", "recomputed_tokens", "longest_absences"):
            return True
        key, gap = arguments[0], arguments[1]
        last = self.last.get(key, "")
        at_once = last and gap == 0 and verb != "wait" and self._last_step(key) == len(self.steps) - 1
        return verb in NEXT[last] and not at_once

    def _last_step(self, key: Hashable) -> int:
        return self.lives.of[self.names[key]][-1].step

    def perform(self, operation: Operation) -> None:
        verb, *arguments = operation
        if verb in ("short_stays", "recomputed_tokens", "longest_absences"):
            self._ask(verb, *arguments)
            return
        self._pass(arguments[-1] if verb == "quiet" else arguments[1])
        if verb == "quiet":
            self.log.note(f"# {counted(arguments[0], 'step')} without a decision")
        else:
            self._decide(verb, *arguments)

    def _pass(self, steps: int) -> None:
        self.steps += [[] for _ in range(steps)]
        self.lives = _Lives(self.lives.of, len(self.steps))

    def _decide(self, action: str, key: Hashable, gap: int, tokens: int = 0) -> None:
        name = self.names[key] if key in self.names else self.names.add(key)
        self.log.note(f"steps[{len(self.steps) - 1}]: {action} {name}{f', {tokens} tokens' if tokens else ''}")
        self.steps[-1].append(_decision(name, action, tokens))
        if action != "wait":
            self.last[key] = action
            self.lives.of.setdefault(name, []).append(_Event(len(self.steps) - 1, action, tokens))

    def _ask(self, question: str, *arguments: int) -> None:
        log: Any = None

        def answer() -> Any:
            nonlocal log
            log = self.subject([list(decisions) for decisions in self.steps])
            return getattr(log, question)(*arguments)

        line = f"DecisionLog(steps).{question}({', '.join(map(str, arguments))})"
        got = self.log.call(line, answer, raises=(KeyError, "nothing-noted-breaks"))
        wanted = self._wanted(question, *arguments)
        right = _alike(got, wanted)
        thought = None if right else self._thought(question, got, *arguments)
        evidence = {"got": _told(got), "wanted": _told(wanted), "within": arguments[0] if arguments else 0}
        for name in self._bearing_on(question, got, wanted, right):
            self.log.hold(name, right, f"it should return {show(wanted)}", f"it is {show(got)}", thought, **evidence)
        if wanted:
            again = self.log.ask(f"{question} once more", lambda: getattr(log, question)(*arguments))
            self.log.expect(LOG_KEPT, "its answer when it is asked once more", again, got)

    def _wanted(self, question: str, *arguments: int) -> Any:
        if question == "short_stays":
            return _stays(self.lives, arguments[0])
        if question == "recomputed_tokens":
            return _recomputed(self.lives)
        return _longest([*_absences(self.lives), *self.lives.still_away()])

    def _bearing_on(self, question: str, got: Any, wanted: Any, right: bool) -> list[str]:
        """The properties that this answer bears on: of a wrong one, too little or too much tells which.

        A right answer that nothing is there bears on none: it might be all that the code can say.
        """
        if question == "longest_absences":
            still = dict(self.lives.still_away())
            if right:
                ended = any(not equal(wanted[name], still.get(name)) for name in wanted)
                return [AWAY] * ended + [STILL_AWAY] * bool(still)
            short = [name for name in wanted if not isinstance(got, Mapping) or not equal(got.get(name), wanted[name])]
            return [STILL_AWAY if any(equal(still.get(name), wanted[name]) for name in short) else AWAY]
        few, many = (SHORT, LONG) if question == "short_stays" else (AGAIN, ONCE)
        if right:
            return [few, many] if wanted else []
        return [few if self._too_few(got, wanted) else many]

    def _too_few(self, got: Any, wanted: Any) -> bool:
        if isinstance(got, Mapping) and isinstance(wanted, dict):
            return any(name not in got for name in wanted)
        return not isinstance(got, Real) or isinstance(wanted, dict) or float(got) < wanted

    def _thought(self, question: str, got: Any, *arguments: int) -> str | None:
        if got is None:
            return "nothing-returned"
        probes = [*PROBES, (self.steps, self.lives)]
        asked: list[tuple[int, ...]] = [(within,) for within in WITHIN] if arguments else [()]
        theories: Any = {"short_stays": STAYS, "recomputed_tokens": RECOMPUTED}.get(question, ABSENCES)

        def answers() -> list[Any]:
            logs = [self.subject([list(decisions) for decisions in steps]) for steps, _ in probes for _ in asked]
            return [getattr(log, question)(*args) for log, args in zip(logs, asked * len(probes), strict=True)]

        said = ((name, [theory(lives, *args) for _, lives in probes for args in asked]) for name, theory in theories)
        return _named(answers, said)


def _told(answer: Any) -> str:
    """An answer inside a sentence."""
    return "none" if isinstance(answer, Mapping) and not answer else show(answer)


def _decision(name: str, action: str, tokens: int = 0) -> Decision:
    reason = f"{tokens} tokens" if tokens else "no free block"
    return Decision(name, action, reason, 7, 64, 1, 2, 3, 1)


def _log_history(*operations: str) -> History:
    """Operations such as "prefill a +1 35", "swap-out a +2", "quiet 3", "short_stays 3"."""
    parsed = []
    for operation in operations:
        verb, *words = operation.split()
        parsed.append((verb.replace("-", " "), *(int(word) if word.lstrip("+").isdigit() else word for word in words)))
    return History({}, tuple(parsed))


def _played(history: History) -> tuple[list[list[Decision]], _Lives]:
    """The log of a history, and its requests' lives."""
    world = _LogWorld(None, {}, Log())
    for operation in history.operations:
        if world.possible(operation) and operation[0] not in ("short_stays", "recomputed_tokens", "longest_absences"):
            world.perform(operation)
    return world.steps, world.lives


PROBES: list[tuple[list[list[Decision]], _Lives]] = [
    _played(history)
    for history in (
        _log_history(
            "prefill a +0 40", "wait b +1", "prefill b +1 20", "swap-out a +2", "swap-in a +3", "recompute b +0",
            "swap-out a +1", "prefill b +1 31", "recompute b +4", "swap-in a +1", "quiet 2",
        ),
        _log_history(
            "recompute a +1", "swap-in b +0", "swap-out b +1", "ignore a +3", "swap-in b +1", "recompute b +2",
            "prefill b +7 55", "swap-out b +2", "swap-in b +1", "prefill c +0 25", "quiet 5",
        ),
        _log_history(
            "prefill a +0 16", "recompute a +1", "prefill a +1 17", "recompute a +1", "prefill a +2 18",
            "swap-out a +6", "recompute d +2", "prefill d +3 90", "quiet 1",
        ),
    )
]  # fmt: skip


# 12-choose-victim


TOTAL = "all tokens of a group count, those of its answers too"
ENDED = "sequences that have ended do not count"
SPEED = "the speed is tokens a second since the oldest note"
NO_SPEED = "without a note, or where no time has passed, the speed is 0"
LONGEST = "the group with the most tokens makes room"
SLOWEST = "of equally long groups the slowest makes room"
FIRST = "of groups alike in both the first makes room"
QUEUE_KEPT = "the queue stays as it was"

SOMETHING_ELSE = "something else"  # that `choose` returned: no group, no name, no place in the queue
HALF = Fraction(1, 2)  # second: how long a step takes


@dataclass(slots=True)
class _Member:
    """One sequence, by its numbers of tokens."""

    prompt: int
    output: int
    has_ended: bool = False

    @property
    def tokens(self) -> int:
        """Prompt and output."""
        return self.prompt + self.output


@dataclass(slots=True)
class _Request:
    """A group in the account: its sequences and all its notes, (time, tokens), oldest first."""

    members: list[_Member]
    notes: list[tuple[Fraction, int]]

    @property
    def tokens(self) -> int:
        """Of the sequences that go on."""
        return sum(member.tokens for member in self.members if not member.has_ended)

    def speed(self, now: Fraction) -> Fraction:
        """Tokens a second since the oldest note that is kept."""
        time, tokens = self.notes[-SPEED_WINDOW:][0] if self.notes else (now, 0)
        return (self.tokens - tokens) / (now - time) if now > time else Fraction(0)


class _VictimWorld(World):
    """Groups that run and pause, the policy that takes notes of them, and what it answers.

    Operations: ("group", key, (prompt, output), …), a sequence for each pair; ("run", steps, key, …), so many steps of
    half a second in which these groups run; ("note", key), one begins and nothing more; ("pause", steps), in which none
    runs; ("finish", key, i), sequence i ends; ("turn",), the queue is turned round; and the questions
    ("total_len", key), ("speed", key) and ("choose",).
    """

    def __init__(self, subject: Any, setup: Setup, log: Log) -> None:
        self.subject, self.log, self.names = subject, log, Names()
        self.now = Fraction(0)
        self.groups: dict[Hashable, SequenceGroup] = {}
        self.account: dict[Hashable, _Request] = {}
        self.queue: list[Hashable] = []
        self.policy = log.call("policy = LongestSlowest()", subject)

    def choices(self) -> Iterable[Operation]:
        return filter(self.possible, self._all_choices())

    def _all_choices(self) -> Iterator[Operation]:
        keys = list(self.groups)
        if len(keys) < 5:
            new = self.names.new_key()
            for members in (((4, 0),), ((4, 4),), ((8, 0),), ((6, 2),), ((4, 0), (4, 0)), ((4, 1), (2, 1)), ((9, 3),)):
                yield "group", new, *members
        for key in keys:
            yield from (("run", steps, key) for steps in (1, 2, 4, 20))
            yield from (("finish", key, i) for i in range(len(self.account[key].members)))
            yield from (("note", key), ("total_len", key), ("speed", key), ("speed", key))
        if keys:
            yield from [("run", steps, *keys) for steps in (1, 3)] * 2
            yield from [("choose",)] * 6
            yield ("turn",)
        yield "pause", 2

    def possible(self, operation: Operation) -> bool:
        verb, *arguments = operation
        if verb == "group":
            return arguments[0] not in self.groups
        if verb == "finish":
            key, i = arguments
            going = [m for m in self.account[key].members if not m.has_ended] if key in self.groups else []
            return len(going) > 1 and not self.account[key].notes and not self.account[key].members[i].has_ended
        if verb == "choose":
            return bool(self.groups) and not self._hangs_on_rounding()
        if verb == "turn":
            return len(self.queue) > 1
        if verb == "pause":
            return True
        return all(key in self.groups for key in (arguments[1:] if verb == "run" else arguments))

    def _hangs_on_rounding(self) -> bool:
        """Whether two of the longest are equally fast by a number that a float only comes close to."""
        most = max(request.tokens for request in self.account.values())
        speeds = [request.speed(self.now) for request in self.account.values() if request.tokens == most]
        return any(speeds.count(speed) > 1 and speed.denominator & (speed.denominator - 1) for speed in speeds)

    def perform(self, operation: Operation) -> None:
        verb, *arguments = operation
        if verb == "group":
            self._group(*arguments)
        elif verb == "run":
            self._run(*arguments)
        elif verb == "note":
            self.log.note(f"policy.note({self.names[arguments[0]]}, now={float(self.now)})")
            self._note(*arguments)
        elif verb == "pause":
            self.now += arguments[0] * HALF
            self.log.note(f"# {counted(arguments[0], 'step')} of 0.5 s in which none of them runs")
        elif verb == "turn":
            self.queue.reverse()
            self.log.note("# the queue is turned round")
        elif verb == "finish":
            self._finish(*arguments)
        elif verb == "choose":
            self._choose()
        else:
            self._ask(verb, arguments[0])

    def _group(self, key: Hashable, *members: tuple[int, int]) -> None:
        name = self.names.add(key)
        seqs = []
        for i, (prompt, output) in enumerate(members):
            seqs.append(Sequence(100 * len(self.groups) + i, [7] * prompt, 4))
            seqs[-1].status = SequenceStatus.RUNNING
            for _ in range(output):
                seqs[-1].append_token_id(7)
        self.groups[key] = SequenceGroup(name, seqs, arrival_time=float(len(self.groups)))
        self.queue.append(key)
        self.account[key] = _Request([_Member(*member) for member in members], [])
        lengths = " and ".join(f"{prompt} + {output}" for prompt, output in members)
        self.log.note(f'{name} = SequenceGroup("{name}", …)    # {lengths} tokens, prompt + answer')

    def _run(self, steps: int, *keys: Hashable) -> None:
        names = ", ".join(self.names[key] for key in keys)
        self.log.note(f"# {counted(steps, 'step')} of 0.5 s: policy.note, then a token for each sequence of {names}")
        for _ in range(steps):
            for key in keys:
                self._note(key)
                for seq, member in zip(self.groups[key].get_seqs(), self.account[key].members, strict=True):
                    if not member.has_ended:
                        seq.append_token_id(7)
                        member.output += 1
            self.now += HALF

    def _note(self, key: Hashable) -> None:
        request = self.account[key]
        request.notes.append((self.now, request.tokens))
        self.policy.note(self.groups[key], float(self.now))

    def _finish(self, key: Hashable, i: int) -> None:
        self.groups[key].get_seqs()[i].status = SequenceStatus.FINISHED_STOPPED
        self.account[key].members[i].has_ended = True
        self.log.note(f"{self.names[key]}.seqs[{i}].status = SequenceStatus.FINISHED_STOPPED")

    def _ask(self, question: str, key: Hashable) -> None:
        request, name = self.account[key], self.names[key]
        wanted: int | Fraction = request.tokens if question == "total_len" else request.speed(self.now)
        shown = f", now={float(self.now)}" * (question == "speed")
        raises: tuple[type[Exception], str] | None = None
        if question == "speed" and not request.notes:
            raises = (LookupError, "unseen-breaks")
        elif question == "speed" and request.notes[-SPEED_WINDOW:][0][0] == self.now:
            raises = (ZeroDivisionError, "no-time-has-passed")
        evidence = {"name": name, "notes": counted(len(request.notes), "note"), "now": str(float(self.now))}
        got = self.log.call(f"policy.{question}({name}{shown})", self._answer, question, key, raises=raises, **evidence)
        right = _alike(got, wanted)
        prop = TOTAL
        if question == "speed":
            prop = SPEED if wanted else NO_SPEED
        elif any(member.has_ended for member in request.members):
            prop = ENDED
        thought = None if right else self._thought(question, got)
        should = f"it should return {_decimal(wanted)}"
        evidence |= {"got": _decimal(got), "wanted": _decimal(wanted)}
        self.log.hold(prop, right, should, f"it is {_decimal(got)}", thought, **evidence)

    def _answer(self, question: str, key: Hashable | None = None) -> Any:
        """What the learner's policy says now."""
        method = getattr(self.policy, question)
        if question == "choose":
            return self._which(method([self.groups[key] for key in self.queue], float(self.now)))
        return method(self.groups[key], *[float(self.now)] * (question == "speed"))

    def _which(self, got: Any) -> Any:
        """A group as its key; what only stands for one as what it is and the key; all else as it is."""
        for i, key in enumerate(self.queue):
            group = self.groups[key]
            if got is group:
                return key
            if equal(got, group.request_id) and isinstance(got, str):
                return "its name", key
            if type(got) is int and got == i:
                return "its place", key
        return SOMETHING_ELSE, show(got)

    def _choose(self) -> None:
        queue = [self.groups[key] for key in self.queue]
        before = list(queue)
        names = ", ".join(self.names[key] for key in self.queue)
        line = f"policy.choose([{names}], now={float(self.now)})"
        got = self._which(self.log.call(line, self.policy.choose, queue, float(self.now)))
        wanted, prop = self._wanted()
        same = len(queue) == len(before) and all(a is b for a, b in zip(queue, before, strict=True))
        should = f"it should be {self.names[wanted]}: {self._facts(wanted)}"
        if got in self.groups:
            but = f"it is {self.names[got]}: {self._facts(got)}"
        else:
            should, but = (
                f"it should be the group {self.names[wanted]} itself",
                f"it returned {got[1] if got[0] == SOMETHING_ELSE else got[0]}",
            )
        thought = None if got == wanted else self._thought("choose", got)
        evidence = {"victim": self.names[wanted], "facts": self._facts(wanted)}
        evidence["other"] = self.names[got] if got in self.groups else show(got[1])
        evidence["its"] = self._facts(got) if got in self.groups else ""
        self.log.hold(prop, got == wanted, should, but, thought, **evidence)
        if len(queue) > 1 or not same:
            fault = "queue-changed" if not same else None
            self.log.hold(QUEUE_KEPT, same, "the queue should hold what it held", "it has changed", fault)

    def _facts(self, key: Hashable) -> str:
        request = self.account[key]
        return f"{counted(request.tokens, 'token')}, {_decimal(request.speed(self.now))} a second"

    def _wanted(self) -> tuple[Hashable, str]:
        """The victim, and the property that it takes to find it: one round after the other, who is left."""
        most = max(request.tokens for request in self.account.values())
        left = [key for key in self.queue if self.account[key].tokens == most]
        if len(left) == 1:
            return left[0], LONGEST
        slowest = min(self.account[key].speed(self.now) for key in left)
        slow = [key for key in left if self.account[key].speed(self.now) == slowest]
        return slow[0], SLOWEST if len(slow) == 1 else FIRST

    def _measures_right(self, worlds: list[_VictimWorld]) -> bool:
        """Whether lengths and speeds are right, so that a wrong choice is one of the choice."""
        pairs = [(world, key) for world in worlds for key in world.groups]
        wanted = [
            fact for world, key in pairs for fact in (world.account[key].tokens, world.account[key].speed(world.now))
        ]
        try:
            given = [world._answer(question, key) for world, key in pairs for question in ("total_len", "speed")]
        except Exception:  # noqa: BLE001  (then they are not)
            return False
        return _alike(given, wanted)

    def _thought(self, question: str, got: Any) -> str | None:
        if got is None or got == (SOMETHING_ELSE, "None"):
            return "nothing-returned"
        worlds = [_after(history, self.subject) for history in VICTIM_PROBES]
        theories = VICTIM_THEORIES[question]
        if question == "choose":
            if not self._measures_right(worlds):
                return None
            said = [(name, [theory(world) for world in worlds]) for name, theory in theories]
            return _named(lambda: [world._answer("choose") for world in worlds], said)
        pairs = [(world, key) for world in worlds for key in world.groups]
        answers = [(name, [theory(world.account[key], world.now) for world, key in pairs]) for name, theory in theories]
        return _named(lambda: [world._answer(question, key) for world, key in pairs], answers)


def _after(history: History, subject: Any) -> _VictimWorld:
    """A world of its own in which all this has happened."""
    world = _VictimWorld(subject, {}, Log())
    for operation in history.operations:
        world.perform(operation)
    return world


def _decimal(number: Any) -> str:
    """A speed or a number of tokens, the same on every machine."""
    if isinstance(number, Fraction | float):
        return f"{float(number):.4g}"
    return show(number)


def _by(world: _VictimWorld, rank: Callable[[_Request], Any], *, last: bool = False) -> Hashable:
    """The group of the highest rank; of several the first in the queue, or the last."""
    return max(reversed(world.queue) if last else world.queue, key=lambda key: rank(world.account[key]))


def _of_equals(world: _VictimWorld, *, newest: bool) -> Hashable:
    """The longest and slowest; of several the one that came first of all, or last, wherever it stands."""
    ranks = {key: (request.tokens, -request.speed(world.now)) for key, request in world.account.items()}
    return max(reversed(ranks) if newest else ranks, key=lambda key: ranks[key])


def _since_last(request: _Request, now: Fraction) -> Fraction:
    time, tokens = request.notes[-1] if request.notes else (now, 0)
    return (request.tokens - tokens) / (now - time) if now > time else Fraction(0)


def _between(request: _Request, now: Fraction) -> Fraction:
    notes = request.notes[-SPEED_WINDOW:]
    if len(notes) < 2:
        return Fraction(0)
    return (notes[-1][1] - notes[0][1]) / (notes[-1][0] - notes[0][0])


def _by_time(tokens: Fraction | int, request: _Request, now: Fraction) -> Fraction:
    time = request.notes[-SPEED_WINDOW:][0][0] if request.notes else now
    return Fraction(tokens) / (now - time) if now > time else Fraction(0)


def _a_step(request: _Request, now: Fraction) -> Fraction:
    notes = request.notes[-SPEED_WINDOW:]
    return Fraction(request.tokens - notes[0][1], len(notes)) if notes else Fraction(0)


VICTIM_THEORIES: dict[str, tuple[tuple[str, Callable[..., Any]], ...]] = {
    "total_len": (
        ("answers-not-counted", lambda request, now: sum(m.prompt for m in request.members if not m.has_ended)),
        ("answers-not-counted", lambda request, now: sum(m.prompt for m in request.members)),
        ("prompts-not-counted", lambda request, now: sum(m.output for m in request.members if not m.has_ended)),
        ("prompts-not-counted", lambda request, now: sum(m.output for m in request.members)),
        ("ended-sequences-counted", lambda request, now: sum(m.tokens for m in request.members)),
        ("one-sequence-for-all", lambda request, now: max(m.tokens for m in request.members if not m.has_ended)),
        ("one-sequence-for-all", lambda request, now: next(m.tokens for m in request.members if not m.has_ended)),
        ("one-sequence-for-all", lambda request, now: max(m.tokens for m in request.members)),
        ("one-sequence-for-all", lambda request, now: request.members[0].tokens),
    ),
    "speed": (
        ("all-tokens-by-time", lambda request, now: _by_time(request.tokens, request, now)),
        ("tokens-a-step", _a_step),
        ("since-the-last-note", _since_last),
        ("up-to-the-last-note", _between),
    ),
    "choose": (
        ("shortest-goes", lambda world: _by(world, lambda r: (-r.tokens, -r.speed(world.now)))),
        ("shortest-goes", lambda world: _by(world, lambda r: (-r.tokens, r.speed(world.now)))),
        ("shortest-goes", lambda world: _by(world, lambda r: -r.tokens)),
        ("fastest-goes", lambda world: _by(world, lambda r: (r.tokens, r.speed(world.now)))),
        ("speed-first", lambda world: _by(world, lambda r: (-r.speed(world.now), r.tokens))),
        ("speed-first", lambda world: _by(world, lambda r: -r.speed(world.now))),
        ("speed-not-asked", lambda world: _by(world, lambda r: r.tokens)),
        ("speed-not-asked", lambda world: _by(world, lambda r: r.tokens, last=True)),
        ("newest-goes", lambda world: world.queue[-1]),
        ("last-of-equals", lambda world: _by(world, lambda r: (r.tokens, -r.speed(world.now)), last=True)),
        ("age-of-equals", lambda world: _of_equals(world, newest=False)),
        ("age-of-equals", lambda world: _of_equals(world, newest=True)),
        ("name-for-group", lambda world: ("its name", world._wanted()[0])),
        ("name-for-group", lambda world: ("its place", world._wanted()[0])),
    ),
}


def _victim_history(*operations: Operation) -> History:
    return History({}, operations)


VICTIM_PROBES = (
    _victim_history(  # all of them of other lengths; two have run, one of them slowly
        ("group", "a", (6, 4)), ("group", "b", (8, 0)), ("group", "c", (4, 2), (3, 1)), ("group", "d", (2, 1), (5, 4)),
        ("run", 3, "b", "c"), ("pause", 2), ("run", 2, "b"),
    ),
    _victim_history(  # three of one length, two of them alike
        ("group", "a", (7, 0)), ("group", "b", (9, 0)), ("group", "c", (9, 0)), ("group", "d", (8, 0)),
        ("run", 1, "d"), ("pause", 1),
    ),
    _victim_history(  # more steps than notes are kept, after a slow beginning
        ("group", "a", (9, 7)), ("group", "b", (20, 0), (3, 1)), ("finish", "b", 0), ("group", "c", (40, 9), (30, 8)),
        ("finish", "c", 1), ("run", 3, "a"), ("pause", 6), ("run", 18, "a", "b"), ("pause", 1),
    ),
    _victim_history(("group", "a", (5, 1)), ("group", "b", (3, 2)), ("run", 4, "b"), ("run", 3, "a")),
    _victim_history(("group", "a", (6, 0)), ("group", "b", (6, 0)), ("group", "c", (2, 1)), ("turn",)),
)  # fmt: skip


# 12-pick-block-size


EMPTY = "each empty slot costs its bytes"
FILLED = "a request that fills its blocks has no empty slot"
BESIDES = "each block costs its bytes besides"
ADDED = "both costs add up, over all requests"
LEAST = "the block size that costs least is picked"
LARGEST = "of several that cost the same the largest is picked"
NO_CANDIDATE = "without a candidate ValueError is raised"
GIVEN_KEPT = "lengths and candidates stay as they were"

Lengths = tuple[int, ...]
SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


@dataclass(frozen=True, slots=True)
class _Mix:
    """Requests, and what a slot and a block cost."""

    lengths: Lengths
    slot_bytes: int
    block_bytes: int

    def blocks(self, size: int) -> list[int]:
        """Of each request: one for each token that opens a block."""
        return [len(range(0, length, size)) for length in self.lengths]

    def empty(self, size: int) -> list[int]:
        """Slots of each request behind its last token, its blocks laid out in a row."""
        pairs = zip(self.blocks(size), self.lengths, strict=True)
        return [len(range(blocks * size)[length:]) for blocks, length in pairs]

    def cost(self, size: int) -> int:
        """The account."""
        return sum(self.empty(size)) * self.slot_bytes + sum(self.blocks(size)) * self.block_bytes

    def pooled(self, size: int) -> int:
        """The cost of one long request with everybody's tokens."""
        return _Mix((sum(self.lengths),), self.slot_bytes, self.block_bytes).cost(size)

    def with_blocks(self, blocks: list[int], size: int) -> int:
        """The cost of so many blocks for each request."""
        return (sum(blocks) * size - sum(self.lengths)) * self.slot_bytes + sum(blocks) * self.block_bytes

    def with_waste(self, waste: Fraction | int, size: int) -> Fraction | int:
        """The cost of so many empty slots in all."""
        return waste * self.slot_bytes + sum(self.blocks(size)) * self.block_bytes

    def best(self, candidates: Iterable[int], *, most: bool = False, largest: bool = True) -> int:
        """The candidate that costs least, or most; of several the largest, or the smallest."""
        sign, tie = (-1 if most else 1), (-1 if largest else 1)
        return min(candidates, key=lambda size: (sign * self.cost(size), tie * size))


COST_THEORIES: tuple[tuple[str, Callable[[_Mix, int], Any]], ...] = (
    ("half-a-block-for-each", lambda mix, size: mix.with_waste(Fraction(len(mix.lengths) * size, 2), size)),
    ("half-a-block-for-each", lambda mix, size: mix.with_waste(len(mix.lengths) * (size // 2), size)),
    ("full-blocks-waste-one-more", lambda mix, size: mix.with_waste(sum(size - n % size for n in mix.lengths), size)),
    ("full-blocks-waste-one-more", lambda mix, size: mix.with_blocks([n // size + 1 for n in mix.lengths], size)),
    ("rounded-down", lambda mix, size: mix.with_blocks([n // size for n in mix.lengths], size)),
    (
        "rounded-down",
        lambda mix, size: sum(mix.empty(size)) * mix.slot_bytes + sum(n // size for n in mix.lengths) * mix.block_bytes,
    ),
    ("full-slots-counted", lambda mix, size: mix.with_waste(sum(mix.blocks(size)) * size, size)),
    ("tokens-beyond-for-empty", lambda mix, size: mix.with_waste(sum(n % size for n in mix.lengths), size)),
    ("slots-for-bytes", lambda mix, size: sum(mix.empty(size)) + sum(mix.blocks(size)) * mix.block_bytes),
    ("blocks-are-free", lambda mix, size: sum(mix.empty(size)) * mix.slot_bytes),
    (
        "one-block-for-each",
        lambda mix, size: sum(mix.empty(size)) * mix.slot_bytes + len(mix.lengths) * mix.block_bytes,
    ),
    ("requests-share-blocks", lambda mix, size: mix.pooled(size)),
    ("mean-for-sum", lambda mix, size: Fraction(mix.cost(size), len(mix.lengths))),
    ("mean-for-sum", lambda mix, size: mix.cost(size) // len(mix.lengths)),
)
PICK_THEORIES: tuple[tuple[str, Callable[[_Mix, list[int]], Any]], ...] = (
    ("dearest-picked", lambda mix, sizes: mix.best(sizes, most=True)),
    ("dearest-picked", lambda mix, sizes: mix.best(sizes, most=True, largest=False)),
    ("smallest-of-equals", lambda mix, sizes: mix.best(sizes, largest=False)),
    ("first-of-equals", lambda mix, sizes: min(sizes, key=mix.cost)),
    ("smallest-always", lambda mix, sizes: min(sizes)),
    ("largest-always", lambda mix, sizes: max(sizes)),
    ("cost-for-size", lambda mix, sizes: min(map(mix.cost, sizes))),
)
COST_PROBES = tuple(
    (_Mix(lengths, slot_bytes, block_bytes), size)
    for lengths, slot_bytes, block_bytes in (((35, 64), 100, 1000), ((1, 7, 16, 50), 3, 5), ((90, 33, 2), 11, 400))
    for size in (1, 16, 4, 32)
)
PICK_PROBES = (
    (_Mix((35, 64), 100, 1000), [16, 64, 32]),
    (_Mix((35, 64), 100, 10), [64, 4, 16, 1]),
    (_Mix((16,), 1, 0), [8, 4, 16, 64]),
    (_Mix((12, 12), 5, 5), [3, 4, 2, 12]),
    (_Mix((9,), 1, 4), [16, 1, 8, 12]),
    (_Mix((6,), 2, 6), [3, 2, 8]),
)


class _SizesWorld(World):
    """Each operation is one question to a new object.

    Operations: ("cost", lengths, slot_bytes, block_bytes, size) and ("pick", lengths, slot_bytes, block_bytes,
    candidates).
    """

    def __init__(self, subject: Any, setup: Setup, log: Log) -> None:
        self.subject, self.log, self.rng = subject, log, random.Random(setup["draw"])

    def choices(self) -> Iterable[Operation]:
        for _ in range(4):
            lengths = tuple(self.rng.randint(1, 200) for _ in range(self.rng.randint(1, 6)))
            full = tuple(self.rng.choice((16, 32, 64)) for _ in range(self.rng.randint(1, 3)))
            slot, block = self.rng.randint(1, 20), self.rng.choice((0, 1, 5, 40, 300))
            yield "cost", lengths, slot, block, self.rng.choice(SIZES)
            yield "cost", full, slot, block, self.rng.choice((4, 8, 16))
            yield "cost", lengths, slot, 0, self.rng.choice(SIZES)
            yield "pick", lengths, slot, block, tuple(self.rng.sample(SIZES, self.rng.randint(1, 6)))
            yield "pick", full, slot, 0, tuple(self.rng.sample((1, 4, 8, 16, 128), 4))
        yield "pick", lengths, slot, block, ()

    def possible(self, operation: Operation) -> bool:
        return True

    def perform(self, operation: Operation) -> None:
        verb, lengths, slot_bytes, block_bytes, asked = operation
        mix = _Mix(lengths, slot_bytes, block_bytes)
        given = list(lengths)
        line = f"sizes = BlockSizes({given}, slot_bytes={slot_bytes}, block_bytes={block_bytes})"
        sizes = self.log.call(line, self.subject, given, slot_bytes, block_bytes)
        if verb == "cost":
            self._cost(sizes, mix, asked)
        elif asked:
            self._pick(sizes, mix, list(asked))
        else:
            names = ("nothing-to-pick-from", "other-error") if self._picks_right() else (None, None)
            self.log.refuse(NO_CANDIDATE, "sizes.pick([])", sizes.pick, [], returned=names[0], other_error=names[1])
        self.log.expect(GIVEN_KEPT, "the list of lengths", given, list(lengths))

    def _cost(self, sizes: Any, mix: _Mix, size: int) -> None:
        got = self.log.call(f"sizes.cost({size})", sizes.cost, size)
        wanted = mix.cost(size)
        empty, blocks = sum(mix.empty(size)), sum(mix.blocks(size))
        if mix.block_bytes:
            name = ADDED if empty else BESIDES
        else:
            name = EMPTY if empty else FILLED
        right = _alike(got, wanted)
        thought = "nothing-returned" if got is None else None
        if not right and thought is None:
            said = ((name, [theory(*probe) for probe in COST_PROBES]) for name, theory in COST_THEORIES)
            thought = _named(lambda: [self._asked("cost", *probe) for probe in COST_PROBES], said)
        sum_of = f"{empty} empty slots × {mix.slot_bytes} + {counted(blocks, 'block')} × {mix.block_bytes}"
        evidence = {"size": size, "got": show(got), "wanted": wanted, "sum": sum_of, "blocks": counted(blocks, "block")}
        evidence |= {"lengths": list(mix.lengths), "empty": counted(empty, "empty slot"), "slot": mix.slot_bytes}
        should = f"the cost should be {wanted}, {sum_of}"
        self.log.hold(name, right, should, f"it is {show(got)}", thought, **evidence)

    def _pick(self, sizes: Any, mix: _Mix, candidates: list[int]) -> None:
        given = list(candidates)
        got = self.log.call(f"sizes.pick({given})", sizes.pick, given)
        wanted = mix.best(candidates)
        several = sum(mix.cost(size) == mix.cost(wanted) for size in set(candidates)) > 1
        right = _alike(got, wanted)
        thought = "nothing-returned" if got is None else None
        if not right and thought is None and self._costs_right():
            said = ((name, [theory(mix, list(sizes)) for mix, sizes in PICK_PROBES]) for name, theory in PICK_THEORIES)
            thought = _named(lambda: [self._asked("pick", mix, list(sizes)) for mix, sizes in PICK_PROBES], said)
        costs = ", ".join(f"{size} costs {mix.cost(size)}" for size in candidates)
        evidence = {"got": show(got), "wanted": wanted, "costs": costs, "size": wanted}
        name = LARGEST if several else LEAST
        self.log.hold(name, right, f"it should be {wanted} ({costs})", f"it is {show(got)}", thought, **evidence)
        self.log.expect(GIVEN_KEPT, "the list of candidates", given, candidates, "candidates-changed")

    def _costs_right(self) -> bool:
        """Whether the costs are right, so that a wrong pick is one of the picking."""
        costs = [("", [mix.cost(size) for mix, size in COST_PROBES])]
        return _named(lambda: [self._asked("cost", *probe) for probe in COST_PROBES], costs) is not None

    def _picks_right(self) -> bool:
        """Whether there is nothing else to say than what happens without a candidate."""
        picks = [("", [mix.best(sizes) for mix, sizes in PICK_PROBES])]
        return _named(lambda: [self._asked("pick", mix, list(sizes)) for mix, sizes in PICK_PROBES], picks) is not None

    def _asked(self, question: str, mix: _Mix, asked: Any) -> Any:
        """The learner's answer to a question that is no operation."""
        return getattr(self.subject(list(mix.lengths), mix.slot_bytes, mix.block_bytes), question)(asked)


def _sizes_history(*operations: Operation) -> History:
    return History({"draw": 1}, operations)


# 12-collision


FOUND = "what was added is found"
NOT_THERE = "what was never added is not found"
TOKENS = "a block with other tokens is not shared, whatever the hash says"
PREFIX = "the same tokens behind another prefix are another content"
BOTH = "two contents of one hash are both found, each in its own block"

BLOCKS = (0, 1, *range(1002, 1100))  # numbers, in the order in which they are filed; Python keeps small ones once
Tokens = tuple[int, ...]
Content = tuple["int | None", Tokens]


def _weak_hash(strength: int) -> Callable[[int | None, Tokens], int]:
    """A hash with so many values."""

    def weak_hash(prefix: int | None, token_ids: Tokens) -> int:
        return (sum(token_ids) + (0 if prefix is None else 1 + prefix)) % strength

    return weak_hash


class _Index:
    """An index in which somebody believes something; `entries` are (prefix, tokens, block) by hash."""

    def __init__(self, hash_function: Callable[[int | None, Tokens], int], belief: Callable[[Content, Content], bool]):
        self.hash_function, self.belief = hash_function, belief
        self.entries: dict[int, list[tuple[int | None, Tokens, int]]] = {}

    def add(self, prefix: int | None, token_ids: Tokens, block: int) -> None:
        self.entries.setdefault(self.hash_function(prefix, token_ids), []).append((prefix, token_ids, block))

    def find(self, prefix: int | None, token_ids: Tokens) -> int | None:
        for known_prefix, known_ids, block in self._candidates(self.hash_function(prefix, token_ids)):
            if self.belief((known_prefix, known_ids), (prefix, token_ids)):
                return block
        return None

    def _candidates(self, key: int) -> list[tuple[int | None, Tokens, int]]:
        return self.entries.get(key, [])


class _NoZero(_Index):
    """One in which 0 is taken for nothing."""

    def find(self, prefix: int | None, token_ids: Tokens) -> int | None:
        return super().find(prefix, token_ids) or None


class _OneBucket(_Index):
    """One that looks among all entries, whatever their hash."""

    def _candidates(self, key: int) -> list[tuple[int | None, Tokens, int]]:
        return [entry for entries in self.entries.values() for entry in entries]


class _LastFirst(_Index):
    """One in which the entry that came last is looked at first."""

    def _candidates(self, key: int) -> list[tuple[int | None, Tokens, int]]:
        return super()._candidates(key)[::-1]


class _LastOnly(_Index):
    """One with room for one entry of a hash: the last."""

    def _candidates(self, key: int) -> list[tuple[int | None, Tokens, int]]:
        return super()._candidates(key)[-1:]


class _FirstOnly(_Index):
    """One with room for one entry of a hash: the first."""

    def _candidates(self, key: int) -> list[tuple[int | None, Tokens, int]]:
        return super()._candidates(key)[:1]


Belief = Callable[[Content, Content], bool]  # known, asked for -> whether they pass for the same
BELIEFS: tuple[tuple[str, type[_Index], Belief], ...] = (
    *(("hash-believed", kind, lambda known, asked: True) for kind in (_Index, _LastFirst)),
    *(
        (name, kind, belief)
        for kind in (_Index, _LastFirst, _LastOnly, _FirstOnly)
        for name, belief in (
            ("tokens-not-compared", lambda known, asked: known[0] == asked[0]),
            ("prefix-not-compared", lambda known, asked: known[1] == asked[1]),
            ("number-of-tokens-compared", lambda known, asked: len(known[1]) == len(asked[1])),
            ("number-of-tokens-compared", lambda known, asked: (known[0], len(known[1])) == (asked[0], len(asked[1]))),
            ("order-lost", lambda known, asked: (known[0], sorted(known[1])) == (asked[0], sorted(asked[1]))),
            ("order-lost", lambda known, asked: sorted(known[1]) == sorted(asked[1])),
            ("first-token-compared", lambda known, asked: (known[0], known[1][0]) == (asked[0], asked[1][0])),
            ("first-token-compared", lambda known, asked: known[1][0] == asked[1][0]),
        )
    ),
    ("zero-is-a-block", _NoZero, lambda known, asked: known == asked),
    *(
        ("zero-is-a-block", kind, lambda known, asked: (known[0] or 0, known[1]) == (asked[0] or 0, asked[1]))
        for kind in (_Index, _OneBucket)
    ),
    ("only-the-last-is-kept", _LastOnly, lambda known, asked: known == asked),
    ("only-the-first-is-kept", _FirstOnly, lambda known, asked: known == asked),
)


class _CollisionWorld(World):
    """An index over a weak hash, beside a dictionary of whole contents.

    Operations: ("add", key, before, tokens), a new block for these tokens behind the block of key `before`, which is
    "" for none; ("find", before, tokens). The setup's `hashes` is how many values the hash has.
    """

    def __init__(self, subject: Any, setup: Setup, log: Log) -> None:
        self.subject, self.log, self.hashes = subject, log, setup["hashes"]
        self.block_of: dict[Hashable, int] = {}
        self.account: dict[Content, int] = {}  # content -> block
        self.has_found = False  # something, rightly; who finds nothing at all is right about what is not there
        self.index = log.call(
            f"index = BlockIndex(weak_hash)    # its values: 0 to {self.hashes - 1}", subject, _weak_hash(self.hashes)
        )

    def choices(self) -> Iterable[Operation]:
        return filter(self.possible, self._all_choices())

    def _all_choices(self) -> Iterator[Operation]:
        pieces = ((1, 6), (6, 1), (2, 5), (1, 2), (4, 3), (3,), (0, 3), (1, 5), (1,), (16,))
        befores = ["", *list(self.block_of)[-4:]]
        for before in befores:
            for piece in pieces:
                yield "add", len(self.block_of), before, piece
                yield "find", before, piece
        for prefix, tokens in list(self.account) * 3:
            before = "" if prefix is None else next(key for key, block in self.block_of.items() if block == prefix)
            yield "find", before, tokens

    def possible(self, operation: Operation) -> bool:
        verb, *arguments = operation
        before, tokens = arguments[-2:]
        if before != "" and before not in self.block_of:
            return False
        return verb == "find" or (
            arguments[0] not in self.block_of and self._content(before, tokens) not in self.account
        )

    def _content(self, before: Hashable, tokens: Tokens) -> Content:
        return (None if before == "" else self.block_of[before]), tokens

    def perform(self, operation: Operation) -> None:
        verb, *arguments = operation
        prefix, tokens = self._content(*arguments[-2:])
        if verb == "add":
            block = BLOCKS[len(self.account)]
            raises = (ValueError, "collision-refused") if self._others(prefix, tokens) else None
            line = f"index.add({prefix}, {tokens}, block={block})"
            self.log.call(line, self.index.add, *_fresh(prefix, tokens), block, raises=raises, block=block)
            self.block_of[arguments[0]] = self.account[prefix, tokens] = block
        else:
            self._find(prefix, tokens)

    def _others(self, prefix: int | None, tokens: Tokens) -> list[Content]:
        """Known contents with the hash of this one."""
        weak_hash = _weak_hash(self.hashes)
        wanted = weak_hash(prefix, tokens)
        return [known for known in self.account if known != (prefix, tokens) and weak_hash(*known) == wanted]

    def _find(self, prefix: int | None, tokens: Tokens) -> None:
        got = self.log.call(f"index.find({prefix}, {tokens})", self.index.find, *_fresh(prefix, tokens))
        wanted = self.account.get((prefix, tokens))
        others = self._others(prefix, tokens)
        right = got is None if wanted is None else _alike(got, wanted)
        known = next((known for known, block in self.account.items() if _alike(got, block)), None)
        thought = None if right else self._thought()
        if thought in SHOWN_BY_A_BLOCK and known is None or thought in SHOWN_BY_NONE and got is not None:
            thought = None  # it is so, and is shown by another case than this one
        but = f"it is {show(got)}"
        if known is not None and not right:
            but += f", which holds {list(known[1])} behind {_behind(known[0])}"
        evidence = {"prefix": _behind(prefix), "tokens": show(list(tokens)), "wanted": show(wanted), "got": show(got)}
        evidence["place"] = "in no block" if wanted is None else f"in block {wanted}"
        if known is not None:
            evidence |= {"known": show(list(known[1])), "behind": _behind(known[0])}
        self.has_found |= right and wanted is not None
        if right and not self.has_found:
            return
        name = self._property(wanted, tokens, others)
        self.log.hold(name, right, f"it should be {show(wanted)}", but, thought, **evidence)

    def _property(self, wanted: int | None, tokens: Tokens, others: list[Content]) -> str:
        if wanted is not None:
            return BOTH if others else FOUND
        if not others:
            return NOT_THERE
        return PREFIX if any(known[1] == tokens for known in others) else TOKENS

    def _thought(self) -> str | None:
        """The belief that explains what the learner's index finds after each of the probes."""

        def answers(make: Callable[..., Any]) -> list[Any]:
            found = []
            for hashes, added, asked in COLLISION_PROBES:
                index = make(_weak_hash(hashes))
                for block, content in enumerate(added):
                    index.add(*content, block)
                found += [_as_text(index.find(*content)) for content in asked]
            return found

        theories = ((name, answers(_believing(kind, belief))) for name, kind, belief in BELIEFS)
        return _named(lambda: answers(self.subject), theories)


def _believing(kind: type[_Index], belief: Belief) -> Callable[..., _Index]:
    return lambda hash_function: kind(hash_function, belief)


def _as_text(block: Any) -> str:
    """A found block or none, such that 0 is no None."""
    return "none" if block is None else show(block)


def _fresh(prefix: int | None, tokens: Tokens) -> Content:
    """The same content in other objects, as two requests bring it."""
    return None if prefix is None else int(str(prefix)), tuple(map(int, tokens))


def _behind(prefix: int | None) -> str:
    return "nothing" if prefix is None else f"block {prefix}"


SHOWN_BY_NONE = ("only-the-last-is-kept", "only-the-first-is-kept")
SHOWN_BY_A_BLOCK = {name for name, _, _ in BELIEFS} - {*SHOWN_BY_NONE, "zero-is-a-block"}

_ADDED: tuple[Content, ...] = (
    (None, (1, 6)), (None, (2, 5)), (0, (3, 3)), (1, (3, 3)), (0, (4, 2)), (None, (3,)), (None, (6, 1)), (None, (1, 5)),
)  # fmt: skip
_ASKED: tuple[Content, ...] = (
    *_ADDED, (2, (3, 3)), (None, (4, 2)), (0, (2, 4)), (None, (5, 2)), (None, (4, 3)), (1, (1, 6)), (None, (1, 2)),
    (4, (3,)),
)  # fmt: skip
COLLISION_PROBES = tuple((hashes, _ADDED, _ASKED) for hashes in (1, 3)) + ((1, _ADDED[:1], _ASKED), (2, (), _ASKED))


def _collision_history(hashes: int, *operations: Operation) -> History:
    return History({"hashes": hashes}, operations)


STEPS = (
    Step(
        exercise_id="12-read-the-log",
        title="read the scheduler's log",
        points=3,
        subject="DecisionLog",
        writes=("short_stays", "recomputed_tokens", "longest_absences"),
        needs=("__init__",),
        reference=(DecisionLog.short_stays, DecisionLog.recomputed_tokens, DecisionLog.longest_absences),
        properties=(SHORT, LONG, AGAIN, ONCE, AWAY, STILL_AWAY, LOG_KEPT),
        misconceptions={
            "nothing-returned": "Whoever asks the log wants a number to act on: your method returned None.",
            "long-stays-counted": "To be sent away after a long stay is no thrashing: only stays of at most {within} "
            "steps count, which makes {wanted}, and you count {got}.",
            "limit-left-out": "At most {within} steps are {within} steps as well: a stay of exactly that length is "
            "short, which makes {wanted}, and you count {got}.",
            "only-swaps": "A request comes in by a prefill or a swap in, and is sent away by a recompute or a swap "
            "out, in any combination: that makes {wanted}, and you count {got}.",
            "absences-for-stays": "A stay lies between coming in and being sent away, and what you measured is the "
            "time outside: the stays make {wanted}, and you have {got}.",
            "clock-not-started-anew": "Each time that a request comes in a new stay begins, and the clock with it: "
            "that makes {wanted}, and yours has {got}.",
            "nothing-noted-breaks": "A log begins in the middle of things, so a request may be sent away, or come in, "
            "without anything noted of it before: ask first whether there is; yours ended in {error}.",
            "one-number-for-all": "Who it is matters as much as how often: return a dictionary, request by request, "
            "and not the one number {got}.",
            "first-prefill-counted": "The first prefill of a request is work that has to be done; lost is only what a "
            "recompute makes necessary, {wanted} tokens here, and you count {got}.",
            "newest-token-counted": "The newest token of a victim had no keys and values yet when it was sent away, so "
            "its prefill repeats one token less than it has: {wanted} in all, and you count {got}.",
            "log-for-life": "The log begins in the middle of things: what follows a recompute repeats work, although "
            "the log may not have the prefill before, and that makes {wanted} in all; you count {got}.",
            "times-for-tokens": "To compute 20 tokens again or 2000 is not the same: count the tokens, {wanted} here, "
            "and not how often it happened, {got}.",
            "only-those-who-came-back": "Whoever is still away when the log ends has waited up to there, and may be "
            "the one who waits longest: that makes {wanted}, and you have {got}.",
            "last-step-not-over": "The last step of the log has been spent away, too: an open absence lasts up to the "
            "number of steps, and not to that of the last one, which makes {wanted}, and yours is {got}.",
            "last-not-longest": "A short absence afterwards does not undo a long one: keep the longest of each "
            "request, {wanted}, and yours is {got}.",
            "absences-added-up": "The longest absence is one absence, and not all of a request's together: {wanted}, "
            "and yours is {got}.",
            "recompute-is-no-absence": "A request that is dropped to be computed again is as absent as one that was "
            "swapped out: that makes {wanted}, and you have {got}.",
            "ignored-waits-on": "An ignored request has been ended and waits for nothing more: its absence ends there, "
            "which makes {wanted}, and yours is {got}.",
            "times-for-steps": "How long is asked here and not how often: absences are measured in steps, {wanted}, "
            "and yours is {got}.",
        },
        world=_LogWorld,
        examples=(
            _log_history(
                "prefill a +0 35", "recompute a +3", "prefill a +2 38", "short_stays 3", "recomputed_tokens",
                "longest_absences",
            ),
            _log_history("prefill a +0 20", "swap-out a +3", "short_stays 2", "short_stays 3", "short_stays 4"),
            _log_history("swap-out a +1", "quiet 4", "longest_absences", "short_stays 4"),
            _log_history("swap-in a +0", "recompute a +1", "swap-in b +1", "swap-out b +1", "short_stays 1"),
            _log_history("prefill a +0 20", "swap-out a +9", "swap-in a +1", "swap-out a +2", "short_stays 2"),
            _log_history("prefill a +0 20", "swap-out a +1", "swap-in a +4", "swap-out a +2", "longest_absences"),
            _log_history("recompute a +1", "ignore a +2", "quiet 3", "longest_absences"),
            _log_history("prefill a +0 20", "prefill b +0 30", "recompute b +2", "prefill b +1 9", "recomputed_tokens"),
        ),
        setups=lambda rng: {},
    ),
    Step(
        exercise_id="12-choose-victim",
        title="choose who makes room",
        points=3,
        subject="LongestSlowest",
        writes=("total_len", "speed", "choose"),
        needs=("__init__", "note"),
        reference=(LongestSlowest.total_len, LongestSlowest.speed, LongestSlowest.choose),
        properties=(TOTAL, ENDED, SPEED, NO_SPEED, LONGEST, SLOWEST, FIRST, QUEUE_KEPT),
        misconceptions={
            "nothing-returned": "Whoever asks the policy goes on with its answer: your method returned None.",
            "answers-not-counted": "A generated token takes a slot like one of the prompt: `{name}` has {wanted} "
            "tokens in all, and you count {got}.",
            "prompts-not-counted": "The tokens of the prompt take slots as well: `{name}` has {wanted} in all, and you "
            "count {got}.",
            "ended-sequences-counted": "A sequence that has ended holds no blocks any more: `{name}` has {wanted} "
            "tokens in those that go on, and you count {got}.",
            "one-sequence-for-all": "A group makes room with all of its sequences, so their tokens add up: `{name}` "
            "has {wanted}, and you count {got}.",
            "all-tokens-by-time": "The speed is what was generated since the oldest note: `{name}` had tokens before "
            "that, so it is {wanted} a second, and yours is {got}.",
            "tokens-a-step": "The speed is in tokens a second, and steps take different times: divide by the time "
            "since the oldest note, which makes {wanted}, and yours is {got}.",
            "since-the-last-note": "One step says little of how fast a request is: measure from the oldest note that "
            "is kept, which makes {wanted}, and yours is {got}.",
            "up-to-the-last-note": "Time goes on after the last note, and so do the tokens: measure up to now, "
            "{now} s, which makes {wanted}, and yours is {got}.",
            "unseen-breaks": "A request may be looked at before any note was taken of it: `{name}` has {notes}, so its "
            "speed is 0, and yours ended in {error}.",
            "no-time-has-passed": "The oldest note may be of this very moment, and then nothing can be divided by the "
            "time since: the speed is 0, and yours ended in {error}.",
            "shortest-goes": "The group with the most tokens makes the most room, so it goes: `{victim}` ({facts}), "
            "and you chose `{other}` ({its}).",
            "fastest-goes": "Of two that are equally long the slower one goes: `{victim}` ({facts}), and you chose "
            "`{other}` ({its}).",
            "speed-first": "Length decides, and speed only between equally long groups: `{victim}` ({facts}) goes, and "
            "you chose `{other}` ({its}).",
            "speed-not-asked": "Where two groups are equally long their speed decides: `{victim}` ({facts}) goes, and "
            "you chose `{other}` ({its}).",
            "newest-goes": "The last of the queue is the victim of the policy fcfs: this one takes the longest, "
            "`{victim}` ({facts}), and you chose `{other}` ({its}).",
            "last-of-equals": "Of groups that are alike in length and speed the first in the queue goes: `{victim}` "
            "({facts}), and you chose `{other}` ({its}).",
            "age-of-equals": "Groups that are alike in length and speed are told apart by their places in the queue, "
            "and neither by age nor by name: `{victim}` ({facts}) stands first, and you chose `{other}` ({its}).",
            "name-for-group": "The scheduler needs the group itself to take its blocks: yours returned {other}.",
            "queue-changed": "To choose is not to take: the scheduler removes the victim from its queue itself, and "
            "yours has changed the queue.",
        },
        world=_VictimWorld,
        examples=(
            _victim_history(
                ("group", "a", (5, 2)), ("total_len", "a"), ("group", "b", (2, 1), (2, 2)), ("run", 2, "a"),
                ("speed", "a"), ("choose",),
            ),
            _victim_history(("group", "a", (4, 4)), ("speed", "a"), ("note", "a"), ("speed", "a"), ("choose",)),
            _victim_history(
                ("group", "a", (4, 0)), ("group", "b", (6, 0)), ("run", 2, "a"), ("choose",), ("speed", "a"),
                ("speed", "b"),
            ),
            _victim_history(("group", "a", (8, 0)), ("group", "b", (8, 0)), ("choose",), ("turn",), ("choose",)),
            _victim_history(
                ("group", "a", (5, 0)), ("group", "b", (6, 0)), ("run", 1, "a"), ("pause", 2), ("choose",),
            ),
            _victim_history(
                ("group", "a", (4, 0), (9, 2)), ("finish", "a", 1), ("total_len", "a"), ("group", "b", (6, 0)),
                ("choose",),
            ),
            _victim_history(("group", "a", (6, 0)), ("run", 2, "a"), ("pause", 2), ("speed", "a")),
            _victim_history(
                ("group", "a", (6, 0)), ("run", 1, "a"), ("pause", 4), ("run", 20, "a"), ("speed", "a"), ("pause", 3),
                ("speed", "a"),
            ),
        ),
        setups=lambda rng: {},
    ),
    Step(
        exercise_id="12-pick-block-size",
        title="pick a block size",
        points=2,
        subject="BlockSizes",
        writes=("cost", "pick"),
        needs=("__init__",),
        reference=(BlockSizes.cost, BlockSizes.pick),
        properties=(EMPTY, FILLED, BESIDES, ADDED, LEAST, LARGEST, NO_CANDIDATE, GIVEN_KEPT),
        misconceptions={
            "nothing-returned": "Whoever asks wants to compare: your method returned None.",
            "half-a-block-for-each": "Half a block is the waste of a request on average; these lengths are known, and "
            "with blocks of {size} they leave {empty}: {wanted}, and yours is {got}.",
            "full-blocks-waste-one-more": "A request that fills its last block leaves no slot empty: blocks of {size} "
            "for {lengths} leave {empty}, which makes {wanted}, and yours is {got}.",
            "rounded-down": "A block that is begun is a block: round up, {lengths} take {blocks} of {size} and leave "
            "{empty}, which makes {wanted}, and yours is {got}.",
            "full-slots-counted": "A slot that holds a token is no waste: with blocks of {size} there are {empty} in "
            "{blocks}, which makes {wanted}, and yours is {got}.",
            "tokens-beyond-for-empty": "What is left of a length after its full blocks are tokens; the empty slots are "
            "the rest of the last block: {empty}, which makes {wanted}, and yours is {got}.",
            "slots-for-bytes": "Slots and bytes cannot be added: an empty slot costs {slot} bytes, so the cost is "
            "{wanted}, and yours is {got}.",
            "blocks-are-free": "Each block costs something besides its slots, or the smallest size would always win: "
            "{sum} is {wanted}, and yours is {got}.",
            "one-block-for-each": "A request pays for every one of its blocks and not once: {sum} is {wanted}, and "
            "yours is {got}.",
            "requests-share-blocks": "Two requests do not share a last block, so round up each length by itself: "
            "blocks of {size} for {lengths} leave {empty}, which makes {wanted}, and yours is {got}.",
            "mean-for-sum": "The cost is that of all requests together: {sum} is {wanted}, and yours is {got}.",
            "dearest-picked": "The size that costs least is wanted: {costs}; that is {wanted}, and you picked {got}.",
            "smallest-of-equals": "Of sizes that cost the same the largest is picked, which has fewer blocks to keep "
            "account of: {costs}; that is {wanted}, and you picked {got}.",
            "first-of-equals": "Which size stands first in the list means nothing; of those that cost the same the "
            "largest is picked: {costs}; that is {wanted}, and you picked {got}.",
            "smallest-always": "The smallest blocks waste least and are the most to handle: both costs count. {costs}; "
            "that is {wanted}, and you picked {got}.",
            "largest-always": "The largest blocks are the fewest and waste most: both costs count. {costs}; that is "
            "{wanted}, and you picked {got}.",
            "cost-for-size": "The answer is a block size and not what it costs: {costs}; that is {wanted}, and yours "
            "is {got}.",
            "nothing-to-pick-from": "Without a candidate there is nothing to pick, so raise ValueError: whoever called "
            "would go on with a block size that nobody has proposed.",
            "other-error": "The error for a list without candidates is ValueError, since that is what a caller waits "
            "for: yours raised {error}.",
            "candidates-changed": "The list of candidates is the caller's: yours comes back changed.",
        },
        world=_SizesWorld,
        examples=(
            _sizes_history(
                ("cost", (35, 64), 100, 1000, 16), ("cost", (35, 64), 100, 1000, 64),
                ("pick", (35, 64), 100, 1000, (16, 32, 64)),
            ),
            _sizes_history(("cost", (35, 64), 100, 0, 16)),
            _sizes_history(("cost", (32, 64), 100, 0, 16)),
            _sizes_history(("cost", (32, 64), 100, 1000, 16)),
            _sizes_history(("cost", (17, 17), 100, 1000, 16)),
            _sizes_history(("pick", (9,), 1, 4, (16, 1, 8, 12))),
            _sizes_history(("pick", (35, 64), 100, 10, (64, 4, 16, 1))),
            _sizes_history(("pick", (16,), 1, 0, (8, 4, 16, 64))),
            _sizes_history(("pick", (35, 64), 100, 1000, (16,)), ("pick", (35, 64), 100, 1000, ())),
        ),
        setups=lambda rng: {"draw": rng.randint(1, 10**6)},
    ),
    Step(
        exercise_id="12-collision",
        title="do not believe the hash",
        points=2,
        subject="BlockIndex",
        writes=("add", "find"),
        needs=("__init__",),
        reference=(BlockIndex.add, BlockIndex.find),
        properties=(FOUND, NOT_THERE, TOKENS, PREFIX, BOTH),
        misconceptions={
            "hash-believed": "An equal hash is a hint and no proof: {tokens} behind {prefix} was asked for, and block "
            "{got} holds {known} behind {behind}, which is another user's text.",
            "tokens-not-compared": "The same place behind the same prefix says nothing of the tokens: {tokens} was "
            "asked for, and you found block {got}, which holds {known}.",
            "prefix-not-compared": "Keys and values depend on all that stands before: {tokens} behind {prefix} was "
            "asked for, and you found block {got}, which stands behind {behind}.",
            "number-of-tokens-compared": "As many tokens are not the same tokens: {tokens} was asked for, and you "
            "found block {got}, which holds {known}.",
            "first-token-compared": "Every token has to be the same and not only the first: {tokens} was asked for, "
            "and you found block {got}, which holds {known}.",
            "order-lost": "The same tokens in another order are another text: {tokens} was asked for, and you found "
            "block {got}, which holds {known}.",
            "only-the-last-is-kept": "Two contents may have one hash, and both are to be found: {tokens} behind "
            "{prefix} is in block {wanted}, and what came later with the same hash has taken its place.",
            "only-the-first-is-kept": "Two contents may have one hash, and both are to be found: {tokens} behind "
            "{prefix} is in block {wanted}, and what came earlier with the same hash has kept it out.",
            "zero-is-a-block": "0 is the number of a block like any other, and not nothing: {tokens} behind {prefix} "
            "was asked for, which is {place}, and yours found {got}; compare with `None`.",
            "collision-refused": "A collision is nobody's mistake and has to be lived with: file block {block} beside "
            "the other one of its hash; yours ended in {error}.",
        },
        world=_CollisionWorld,
        examples=(
            _collision_history(
                8, ("add", "a", "", (1, 7)), ("find", "", (1, 7)), ("find", "", (2, 6)), ("add", "b", "", (2, 6)),
                ("find", "", (2, 6)), ("find", "", (1, 7)),
            ),
            _collision_history(
                1, ("find", "", (1, 7)), ("add", "a", "", (1, 7)), ("find", "", (1, 7)), ("find", "a", (1, 7)),
            ),
            _collision_history(
                1, ("add", "a", "", (1, 7)), ("find", "", (1, 7)), ("find", "", (7, 1)), ("find", "", (1, 6)),
                ("find", "", (1,)), ("find", "", (17,)),
            ),
            _collision_history(
                1, ("add", "a", "", (1, 7)), ("add", "b", "a", (2, 2)), ("find", "a", (2, 2)), ("find", "b", (2, 2)),
                ("find", "", (1, 7)), ("find", "a", (1, 7)),
            ),
            _collision_history(1000, ("add", "a", "", (1, 7)), ("find", "", (1, 7)), ("find", "", (1, 8))),
        ),
        setups=lambda rng: {"hashes": rng.choice((1, 1, 2, 3, 5, 1000))},
    ),
)  # fmt: skip

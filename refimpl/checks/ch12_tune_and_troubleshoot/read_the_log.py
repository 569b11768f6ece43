"""12-read-the-log: what a scheduler's log says.

The account is each request's own life; the theories read the same lives otherwise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

from refimpl.checks.ch12_tune_and_troubleshoot.probes import alike, named
from refimpl.checks.step import History, Log, Names, Operation, Setup, Step, World, counted, equal, show
from refimpl.checks.thoughts import asked, returns
from refimpl.scheduler import Decision
from refimpl.simulation.diagnosis import DecisionLog

SHORT = "stays of at most so many steps are counted, request by request"
LONG = "longer stays, and those that began before the log, are not counted"
AGAIN = "tokens that were computed before are counted where they are computed again"
ONCE = "what is computed for the first time is no lost work"
AWAY = "the longest absence of each request that was sent away"
STILL_AWAY = "an absence that has not ended lasts up to the end of the log"
LOG_KEPT = "the log stays as it was, whatever is asked of it"

QUESTIONS = ("short_stays", "recomputed_tokens", "longest_absences")
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
    return dict(Counter(names))


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


def _longest_of_two(lives: _Lives) -> dict[str, int]:
    """The longer of the last two absences, to somebody who compares with the one before and not with the longest."""
    found: dict[str, list[int]] = {}
    for name, steps in [*_absences(lives), *lives.still_away()]:
        found.setdefault(name, []).append(steps)
    return {name: max(steps[-2:]) for name, steps in found.items()}


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
    ("last-not-longest", lambda lives: _longest([*dict(_absences(lives)).items(), *lives.still_away()])),
    ("last-not-longest", lambda lives: {**_longest(_absences(lives)), **dict(lives.still_away())}),
    ("last-not-longest", _longest_of_two),
    ("absences-added-up", lambda lives: _summed([*_absences(lives), *lives.still_away()])),
    ("recompute-is-no-absence", lambda lives: _longest(_swapped_only(lives))),
    ("ignored-waits-on", _ignored_waits_on),
    ("times-for-steps", _leavings),
)


def _swapped_only(lives: _Lives) -> list[tuple[str, int]]:
    away = [(name, steps) for name, steps in lives.still_away() if lives.of[name][-1].action == "swap out"]
    return [*_absences(lives, ("swap out",)), *away]


WITHIN = (0, 1, 2, 4)
ALL_QUESTIONS: tuple[tuple[str, tuple[int, ...]], ...] = (
    ("longest_absences", ()), ("recomputed_tokens", ()), ("short_stays", (1,)), ("short_stays", (10**3,)),
)  # fmt: skip


class _LogWorld(World):
    """A log that grows by a decision at a time, and three questions about what there is of it.

    Operations: (action, key, steps) or ("prefill", key, steps, tokens), a decision so many steps after the last one;
    ("quiet", steps); and the questions, of which ("short_stays", within) has an argument.
    """

    def __init__(self, subject: Any, setup: Setup, log: Log) -> None:
        super().__init__(subject, setup, log)
        self.names = Names()
        self.steps: list[list[Decision]] = [[]]
        self.lives = _Lives({}, 1)
        self.last: dict[Hashable, str] = {}  # key -> what happened last, waits aside

    def choices(self) -> Iterable[Operation]:
        return filter(self.possible, self._all_choices())

    def _all_choices(self) -> Iterator[Operation]:
        gaps = (0, 1, 1, 2, 3, 5)
        for key in (*self.names, self.names.new_key()):
            for action in NEXT[self.last.get(key, "")]:
                yield from ((action, key, gap, *[20 + 5 * gap] * (action == "prefill")) for gap in gaps)
        yield from (("quiet", gap) for gap in (1, 4))
        for _ in range(6):
            yield from (("short_stays", within) for within in WITHIN)
            yield from (("recomputed_tokens",), ("longest_absences",)) * 4

    def possible(self, operation: Operation) -> bool:
        verb, *arguments = operation
        if verb in ("quiet", *QUESTIONS):
            return True
        key, gap = arguments[0], arguments[1]
        last = self.last.get(key, "")
        at_once = last and gap == 0 and verb != "wait" and self._last_step(key) == len(self.steps) - 1
        return verb in NEXT[last] and not at_once

    def _last_step(self, key: Hashable) -> int:
        return self.lives.of[self.names[key]][-1].step

    def perform(self, operation: Operation) -> None:
        verb, *arguments = operation
        if verb in QUESTIONS:
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
        raises = (KeyError, "nothing-noted-breaks") if self._answers_what_is_noted(question) else None
        got = self.log.call(line, answer, raises=raises)
        wanted = self._wanted(question, *arguments)
        right = alike(got, wanted)
        thought = None if right else self._thought(question, got, *arguments)
        evidence = {"got": _told(got), "wanted": _told(wanted), "within": arguments[0] if arguments else 0}
        for name in self._bearing_on(question, got, wanted, right):
            self.log.hold(name, right, f"it should return {show(wanted)}", f"it is {show(got)}", thought, **evidence)
        if wanted:
            self._ask_all(log, line.partition(".")[2])
            again = self.log.ask(f"{question} once more", lambda: getattr(log, question)(*arguments))
            self.log.expect(LOG_KEPT, "its answer when it is asked again after the others", again, got)

    def _answers_what_is_noted(self, question: str) -> bool:
        """Whether it gives an answer where all that it asks for is in the log."""
        steps, _ = ALL_NOTED[question]
        return returns(lambda: getattr(self.subject(steps), question)(*[1] * (question == "short_stays")))

    def _ask_all(self, log: Any, before: str) -> None:
        """What has been asked of a log `before` changes none of its answers."""
        for question, arguments in ALL_QUESTIONS:
            new = self.subject([list(decisions) for decisions in self.steps])
            fresh, later = (asked(getattr(which, question), *arguments) for which in (new, log))
            line = f"{question}({', '.join(map(str, arguments))})"
            self.log.expect(LOG_KEPT, f"the same log's {line}, asked after {before},", later, fresh)
            before += f", {line}"

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
        limits: list[tuple[int, ...]] = [(within,) for within in WITHIN] if arguments else [()]
        theories: Any = {"short_stays": STAYS, "recomputed_tokens": RECOMPUTED}.get(question, ABSENCES)

        def answers() -> list[Any]:
            logs = [self.subject([list(decisions) for decisions in steps]) for steps, _ in probes for _ in limits]
            return [getattr(log, question)(*args) for log, args in zip(logs, limits * len(probes), strict=True)]

        said = (
            (name, [theory(lives, *args) for _, lives in probes for args in limits])
            for name, theory in theories
            if alike(got, theory(self.lives, *arguments))
        )
        return named(answers, said)


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
        if world.possible(operation) and operation[0] not in QUESTIONS:
            world.perform(operation)
    return world.steps, world.lives


ALL_NOTED = {
    "short_stays": _played(_log_history("prefill a +0 20", "swap-out a +1")),
    "recomputed_tokens": _played(_log_history("recompute a +0", "prefill a +1 20")),
    "longest_absences": _played(_log_history("swap-out a +0", "swap-in a +1", "swap-out b +1")),
}

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


STEP = Step(
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
        _log_history("swap-out a +0", "swap-in a +4", "swap-out a +1", "swap-in a +2", "longest_absences"),
        _log_history(
            "swap-out a +0", "swap-in a +4", "swap-out a +1", "swap-in a +1", "swap-out a +1", "longest_absences",
        ),
        _log_history("recompute a +1", "ignore a +2", "quiet 3", "longest_absences"),
        _log_history("prefill a +0 20", "prefill b +0 30", "recompute b +2", "prefill b +1 9", "recomputed_tokens"),
    ),
    setups=lambda rng: {},
)  # fmt: skip

"""12-choose-victim: who makes room.

The account is lengths and notes; the theories choose by them otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from refimpl.checks.ch12_tune_and_troubleshoot.probes import alike, named
from refimpl.checks.step import History, Log, Names, Operation, Setup, Step, World, counted, equal, same_objects, show
from refimpl.checks.thoughts import asked
from refimpl.scheduler import SPEED_WINDOW
from refimpl.sequence import Sequence, SequenceGroup, SequenceStatus
from refimpl.simulation.diagnosis import LongestSlowest

TOTAL = "all tokens of a group count, those of its answers too"
ENDED = "sequences that have ended do not count"
SPEED = "the speed is tokens a second since the oldest note"
NO_SPEED = "without a note, or where no time has passed, the speed is 0"
LONGEST = "the group with the most tokens makes room"
SLOWEST = "of equally long groups the slowest makes room"
FIRST = "of groups alike in both the first makes room"
QUEUE_KEPT = "the queue stays as it was"

SOMETHING_ELSE = "something else"  # that `choose` returned: no group, no name, no place in the queue
NEW_GROUPS = (
    ((4, 0),), ((4, 4),), ((8, 0),), ((6, 2),), ((4, 0), (4, 0)), ((4, 1), (2, 1), (1, 0)), ((9, 3),),
)  # fmt: skip
USUAL = {"steps_a_second": 2}
FAST = {"steps_a_second": 128}
ENDINGS = (SequenceStatus.FINISHED_STOPPED, SequenceStatus.FINISHED_LENGTH_CAPPED)  # taken in turn


@dataclass(slots=True)
class _Member:
    """One sequence, by its numbers of tokens."""

    prompt: int
    output: int
    ending: SequenceStatus | None = None

    @property
    def has_ended(self) -> bool:
        """Whether it is of those that do not count."""
        return self.ending is not None

    @property
    def tokens(self) -> int:
        """Prompt and output."""
        return self.prompt + self.output


@dataclass(slots=True)
class _Request:
    """A group in the account: its sequences and all its notes, (time, tokens), oldest first."""

    members: list[_Member]
    notes: list[tuple[Fraction, int]]  # none before it runs

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

    Operations: ("group", key, (prompt, output), …), a sequence for each pair; ("run", steps, key, …), so many steps in
    which these groups run; ("note", key), one begins and nothing more; ("pause", steps), in which none runs;
    ("finish", key, i), sequence i ends; ("turn",), the queue is turned round; and the questions ("total_len", key),
    ("speed", key) and ("choose",).
    """

    def __init__(self, subject: Any, setup: Setup, log: Log) -> None:
        super().__init__(subject, setup, log)
        self.names = Names()
        self.now = Fraction(0)
        self.step = Fraction(1, setup["steps_a_second"])
        self.ended = 0
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
            for members in NEW_GROUPS:
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

    def _group(self, key: Hashable, *members: tuple[int, int]) -> None:
        name = self.names.add(key)
        seqs = []
        for i, (prompt, output) in enumerate(members):
            seqs.append(Sequence(100 * len(self.groups) + i, [7] * prompt, 4))
            for _ in range(output):
                seqs[-1].append_token_id(7)
        self.groups[key] = SequenceGroup(name, seqs, arrival_time=float(len(self.groups)))
        self.queue.append(key)
        self.account[key] = _Request([_Member(*member) for member in members], [])
        lengths = " and ".join(f"{prompt} + {output}" for prompt, output in members)
        self.log.note(f'{name} = SequenceGroup("{name}", …)    # {lengths} tokens, prompt + answer')

    def _run(self, steps: int, *keys: Hashable) -> None:
        names = ", ".join(self.names[key] for key in keys)
        self.log.note(f"# {self._said(steps)}: policy.note, then a token for each sequence of {names}")
        for _ in range(steps):
            for key in keys:
                self._take_note(key)
                for seq, member in zip(self.groups[key].get_seqs(), self.account[key].members, strict=True):
                    if not member.has_ended:
                        seq.append_token_id(7)
                        member.output += 1
            self.now += self.step

    def _note(self, key: Hashable) -> None:
        self.log.note(f"policy.note({self.names[key]}, now={float(self.now)})")
        self._take_note(key)

    def _take_note(self, key: Hashable) -> None:
        request = self.account[key]
        for seq, member in zip(self.groups[key].get_seqs(), request.members, strict=True):
            if not member.has_ended:
                seq.status = SequenceStatus.RUNNING
        request.notes.append((self.now, request.tokens))
        self.policy.note(self.groups[key], float(self.now))

    def _finish(self, key: Hashable, i: int) -> None:
        ending = ENDINGS[self.ended % len(ENDINGS)]
        self.ended += 1
        self.groups[key].get_seqs()[i].status = self.account[key].members[i].ending = ending
        self.log.note(f"{self.names[key]}.seqs[{i}].status = {ending}")

    def _pause(self, steps: int) -> None:
        self.now += steps * self.step
        self.log.note(f"# {self._said(steps)} in which none of them runs")

    def _said(self, steps: int) -> str:
        return f"{counted(steps, 'step')} of {float(self.step)} s"

    def _turn(self) -> None:
        self.queue.reverse()
        self.log.note("# the queue is turned round")

    def _total_len(self, key: Hashable) -> None:
        self._ask("total_len", key)

    def _speed(self, key: Hashable) -> None:
        self._ask("speed", key)

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
        right = alike(got, wanted)
        prop = TOTAL
        if question == "speed":
            prop = SPEED if wanted else NO_SPEED
        elif any(member.has_ended for member in request.members):
            prop = ENDED
        thought = None if right else self._thought(question, got, key)
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
        same = same_objects(queue, before)
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
        questions = [(world, key, question) for world, key in pairs for question in ("total_len", "speed")]
        given = asked(lambda: [world._answer(question, key) for world, key, question in questions])
        return given is not None and alike(given, wanted)

    def _thought(self, question: str, got: Any, key: Hashable = None) -> str | None:
        if got is None or got == (SOMETHING_ELSE, "None"):
            return "nothing-returned"
        worlds = [_after(history, self.subject) for history in VICTIM_PROBES]
        here = (self,) if question == "choose" else (self.account[key], self.now)
        theories = [(name, theory) for name, theory in VICTIM_THEORIES[question] if alike(got, theory(*here))]
        if question == "choose":
            if not self._measures_right(worlds):
                return None
            said = [(name, [theory(world) for world in worlds]) for name, theory in theories]
            return named(lambda: [world._answer("choose") for world in worlds], said)
        pairs = [(world, key) for world in worlds for key in world.groups]
        answers = [(name, [theory(world.account[key], world.now) for world, key in pairs]) for name, theory in theories]
        return named(lambda: [world._answer(question, key) for world, key in pairs], answers)


def _after(history: History, subject: Any) -> _VictimWorld:
    """A world of its own in which all this has happened."""
    world = _VictimWorld(subject, history.setup, Log())
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
        (
            "ended-sequences-counted",
            lambda request, now: sum(m.tokens for m in request.members if m.ending is not ENDINGS[0]),
        ),
        ("only-those-that-run", lambda request, now: request.tokens if request.notes else 0),
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
        ("speed-first", lambda world: _by(world, lambda r: 100 * r.tokens - r.speed(world.now))),
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


VICTIM_PROBES = (
    # all of them of other lengths; two have run, one of them slowly
    History.of(
        USUAL, ("group", "a", (6, 4)), ("group", "b", (8, 0)), ("group", "c", (4, 2), (3, 1)),
        ("group", "d", (2, 1), (5, 4)), ("run", 3, "b", "c"), ("pause", 2), ("run", 2, "b"),
    ),
    # three of one length, two of them alike
    History.of(
        USUAL, ("group", "a", (7, 0)), ("group", "b", (9, 0)), ("group", "c", (9, 0)), ("group", "d", (8, 0)),
        ("run", 1, "d"), ("pause", 1),
    ),
    # more steps than notes are kept, after a slow beginning
    History.of(
        USUAL, ("group", "a", (9, 7)), ("group", "b", (20, 0), (3, 1)), ("finish", "b", 0),
        ("group", "c", (40, 9), (30, 8)), ("finish", "c", 1), ("run", 3, "a"), ("pause", 6), ("run", 18, "a", "b"),
        ("pause", 1),
    ),
    History.of(USUAL, ("group", "a", (5, 1)), ("group", "b", (3, 2)), ("run", 4, "b"), ("run", 3, "a")),
    History.of(USUAL, ("group", "a", (6, 0)), ("group", "b", (6, 0)), ("group", "c", (2, 1)), ("turn",)),
    # the slower one is shorter and comes later
    History.of(USUAL, ("group", "a", (7, 0)), ("group", "b", (3, 0)), ("run", 2, "a")),
    # the longest by a token is by far the fastest
    History.of(FAST, ("group", "a", (5, 0), (3, 0)), ("group", "b", (9, 0)), ("run", 1, "a")),
)  # fmt: skip


STEP = Step(
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
        "only-those-that-run": "A sequence that does not run yet has not ended: `{name}` has {wanted} tokens in those "
        "that go on, and you count {got}.",
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
        History.of(
            USUAL, ("group", "a", (5, 2)), ("total_len", "a"), ("group", "b", (2, 1), (2, 2)), ("run", 2, "a"),
            ("speed", "a"), ("choose",),
        ),
        History.of(USUAL, ("group", "a", (4, 4)), ("speed", "a"), ("note", "a"), ("speed", "a"), ("choose",)),
        History.of(
            USUAL, ("group", "a", (4, 0)), ("group", "b", (6, 0)), ("run", 2, "a"), ("choose",), ("speed", "a"),
            ("speed", "b"),
        ),
        History.of(USUAL, ("group", "a", (8, 0)), ("group", "b", (8, 0)), ("choose",), ("turn",), ("choose",)),
        History.of(
            USUAL, ("group", "a", (5, 0)), ("group", "b", (6, 0)), ("run", 1, "a"), ("pause", 2), ("choose",),
        ),
        History.of(
            USUAL, ("group", "a", (4, 0), (9, 2)), ("finish", "a", 1), ("total_len", "a"), ("group", "b", (6, 0)),
            ("choose",),
        ),
        History.of(
            USUAL, ("group", "a", (4, 0), (9, 2), (3, 1)), ("finish", "a", 0), ("finish", "a", 1), ("total_len", "a"),
        ),
        History.of(
            USUAL, ("group", "a", (5, 0)), ("group", "b", (5, 0)), ("group", "c", (6, 0)), ("run", 1, "b"),
            ("run", 1, "a"), ("choose",),
        ),
        History.of(FAST, ("group", "a", (5, 0)), ("group", "b", (5, 0)), ("run", 1, "a"), ("choose",)),
        History.of(USUAL, ("group", "a", (6, 0)), ("run", 2, "a"), ("pause", 2), ("speed", "a")),
        History.of(
            USUAL, ("group", "a", (6, 0)), ("run", 1, "a"), ("pause", 4), ("run", 20, "a"), ("speed", "a"),
            ("pause", 3), ("speed", "a"),
        ),
    ),
    setups=lambda rng: USUAL,
)  # fmt: skip

"""Plays histories of a step on the learner's object and says what was found.

Every history has a seed of its own, so the same code gets the same answer everywhere. The first failure with a name
is preferred to one without; it is then cut down to the shortest history that still shows it.
"""

from __future__ import annotations

import dataclasses
import itertools
import linecache
import os
import random
import sysconfig
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from refimpl.checks import sandbox
from refimpl.checks.catalogue import find
from refimpl.checks.result import CheckResult, Outcome
from refimpl.checks.step import RUNS, Log, Operation, Setup, Step, Violation, World, one_line, said

TIME_LIMIT = 10.0  # seconds for one check, shortest history included
ENOUGH = 0.5  # of the time limit: slow code meets fewer random histories, and is not called endless
ENOUGH_SHRINKING = 0.8
RANDOM_HISTORIES = 60
OPERATIONS = 24  # operations in a random history
LINES = 12  # of a trace, at most

NOT_YOURS = "This is refimpl's own code at work; the points are for an answer of yours."

_REFIMPL = str(Path(__file__).parents[1]) + os.sep
NOT_THE_LEARNERS = (
    _REFIMPL,
    *{sysconfig.get_path(name) + os.sep for name in ("stdlib", "purelib", "platlib")},
)


class NotAttempted(Exception):
    """The learner's code is still the stub, or stands on one; `args` holds the sentence that says which."""


@dataclasses.dataclass(frozen=True, slots=True)
class Failure:
    """One history that shows what is wrong: a property that does not hold, or what the learner's code raised.

    Args:
        setup, operations: the history.
        lines: what of it the learner is shown.
        asked: the question after the last operation that ended in an error, if it was not the operation itself.
        printed: what the learner's code printed meanwhile.
        cause: what did not hold, or what was raised.
        misconception: the thought that it shows, None if it has no name.
    """

    setup: Setup
    operations: tuple[Operation, ...]
    lines: tuple[str, ...]
    asked: str
    printed: str
    cause: Violation | BaseException
    misconception: str | None

    @property
    def kind(self) -> tuple[str, str | None]:
        """What must stay the same while the history is cut down."""
        if isinstance(self.cause, Violation):
            return self.cause.name, self.misconception
        return RUNS, type(self.cause).__name__

    @property
    def size(self) -> tuple[int, int]:
        """Fewer operations first, then a smaller world."""
        return len(self.operations), sum(self.setup.values())


def check(exercise_id: str, subject: Any, **context: Any) -> CheckResult:
    """Check the learner's `subject`, say the result in one printed sentence, and return it for the notebook to show.
    It has no counterpart in vLLM.

    Args:
        exercise_id: such as "03-free".
        subject: the class or function itself.
        context: what else a step asks for; none does so far.

    Returns:
        CheckResult: its `outcome` is one of "not attempted", "raised", "timed out", "misconception", "wrong",
        "not yours" and "passed".

    Raises:
        ValueError: for an id that does not exist, or context that the step does not ask for.
        RuntimeError: when a property was never compared, which is a fault of the check.

    >>> result = check("00-first-check", lambda reserved, used: used)
    00-first-check: misconception — Used slots are not wasted: of 2048 reserved slots 35 hold tokens, so 2013 are \
wasted, not 35.
    >>> result.points < result.max_points
    True
    """
    step = find(exercise_id)
    if context:
        raise ValueError(f"{exercise_id} takes the {step.subject} alone, not {', '.join(context)}")
    result = examine(step, subject)
    print(result.sentence)
    return result


def examine(step: Step, subject: Any, time_limit: float = TIME_LIMIT) -> CheckResult:
    """Check `subject` against `step`, printing nothing; see `check`."""
    why_not = step.cannot_run()
    if why_not is not None:
        return _result(step, "not attempted", why_not)
    unfit = _unfit(step, subject) or _stands_on_sand(step, subject, time_limit)
    if unfit is not None:
        return unfit
    if _is_refimpls(step, subject):
        return _result(step, "not yours", NOT_YOURS)
    log = Log()
    failure: Failure | None = None
    with sandbox.room(step.reference) as room:
        try:
            failure = sandbox.within(time_limit, lambda: _search(step, subject, log, room, time_limit))
        except NotAttempted as stub:
            return _result(step, "not attempted", stub.args[0])
        except sandbox.OutOfTime as out_of_time:
            return _timed_out(step, log, time_limit, out_of_time.stopped, room.printed)
        except sandbox.NotYours:
            pass
    if room.not_yours:
        return _result(step, "not yours", NOT_YOURS)
    _insist_on_every_property(step, log, failure)
    return _passed(step, log) if failure is None else _failed(step, failure, log)


def _search(step: Step, subject: Any, log: Log, room: sandbox.Room, time_limit: float) -> Failure | None:
    """The failure to show, cut down; None when every history went well."""
    start = time.monotonic()
    chosen: Failure | None = None
    at_least = len(step.examples) + (step.random_histories or 0)
    for setup, next_operation in _histories(step):
        if log.histories >= at_least and time.monotonic() - start > ENOUGH * time_limit:
            break
        failure = _play(step, subject, setup, next_operation, log, room)
        log.histories += 1
        if failure is not None and set(log.tally) == {RUNS} and (stub := _stub(step, failure.cause)):
            raise NotAttempted(stub)
        if failure is not None and (chosen is None or (failure.misconception and not chosen.misconception)):
            chosen = failure
    if chosen is None:
        return None
    return _shrink(step, subject, chosen, log, room, start + ENOUGH_SHRINKING * time_limit)


def _stub(step: Step, error: BaseException) -> str | None:
    """What to say of the stub that raised this: the step's own, or one that it calls. None if it was no stub."""
    *way, last = traceback.extract_tb(error.__traceback__)
    if not isinstance(error, NotImplementedError) or last.filename.startswith(NOT_THE_LEARNERS):
        return None
    called_by = {frame.name for frame in way if not frame.filename.startswith(NOT_THE_LEARNERS)}
    still = "still ends in `raise NotImplementedError()`"
    if last.name not in step.asks_for and called_by.intersection(step.asks_for):
        return f"This step needs `{last.name}`, which {still}: write that one first."
    name = last.name if last.name in step.asks_for else step.asks_for[0]
    return f"`{name}` {still}: write your code in place of that line and run the cell."


def _histories(step: Step) -> Iterator[tuple[Setup, Callable[[World], Operation | None]]]:
    """The examples, then random lives."""
    for example in step.examples:
        yield example.setup, _script(example.operations)
    for number in range(step.random_histories or RANDOM_HISTORIES):
        rng = random.Random(f"{step.exercise_id}/{number}")
        yield step.setups(rng), _chance(rng)


def _script(operations: tuple[Operation, ...]) -> Callable[[World], Operation | None]:
    """The next operation of a given list, leaving out what is not possible now."""
    remaining = iter(operations)
    return lambda world: next((operation for operation in remaining if world.possible(operation)), None)


def _chance(rng: random.Random) -> Callable[[World], Operation | None]:
    """A random operation of those that make sense now."""
    left = iter(range(OPERATIONS))

    def choose(world: World) -> Operation | None:
        choices = list(world.choices())
        return None if next(left, None) is None or not choices else rng.choice(choices)

    return choose


def _play(
    step: Step,
    subject: Any,
    setup: Setup,
    next_operation: Callable[[World], Operation | None],
    log: Log,
    room: sandbox.Room,
) -> Failure | None:
    """One history in a fresh world, up to its end or its first failure."""
    room.printed = ""
    log.lines.clear()
    log.asking = ""
    log.reached = False
    operations: list[Operation] = []
    misconception = None
    try:
        world = step.world(subject, setup, log)
        while (operation := next_operation(world)) is not None:
            operations.append(operation)
            log.reached |= operation[0] in step.calls
            world.perform(operation)
        return None
    except (sandbox.Stop, sandbox.NotYours):
        raise
    except Violation as violation:
        cause: BaseException = violation
        misconception = violation.misconception if violation.misconception in step.misconceptions else None
    except BaseException as error:  # noqa: BLE001  (raised in this thread, so by the learner's code: no interrupt)
        cause = error
        log.broken.add(RUNS)
    return Failure(setup, tuple(operations), tuple(log.lines), log.asking, room.printed, cause, misconception)


def _shrink(step: Step, subject: Any, failure: Failure, log: Log, room: sandbox.Room, until: float) -> Failure:
    """The shortest history in the smallest world that still fails for the same cause."""
    uncounted = Log(lines=log.lines)  # the same lines, so that a call that never returns can be named
    for setup, operations in _shorter(failure):
        if time.monotonic() > until:
            break
        shorter = _play(step, subject, setup, _script(operations), uncounted, room)
        if shorter is not None and shorter.kind == failure.kind and shorter.size < failure.size:
            return _shrink(step, subject, shorter, log, room, until)
    return failure


def _shorter(failure: Failure) -> Iterator[tuple[Setup, tuple[Operation, ...]]]:
    """Histories one operation shorter, then the same in a smaller world, then those that lack a pair."""
    everything = range(len(failure.operations))
    for i in everything:
        yield failure.setup, _without(failure.operations, i)
    for name, value in failure.setup.items():
        for smaller in range(1, value if name.startswith("num_") else 1):
            yield {**failure.setup, name: smaller}, failure.operations
    for pair in itertools.combinations(everything, 2):  # such as a second owner that comes and goes
        yield failure.setup, _without(failure.operations, *pair)


def _without(operations: tuple[Operation, ...], *left_out: int) -> tuple[Operation, ...]:
    return tuple(operation for i, operation in enumerate(operations) if i not in left_out)


def _unfit(step: Step, subject: Any) -> CheckResult | None:
    """The result for a subject that cannot be checked at all: the wrong kind of thing, or no method yet."""
    is_class = bool(step.writes)
    if is_class != isinstance(subject, type) or not callable(subject):
        kind = "class" if is_class else "function"
        message = (
            f'This check wants the {kind} itself, `check("{step.exercise_id}", {step.subject})`, '
            f"and was given {_kind_of(subject)}."
        )
        return _result(step, "wrong", message)
    for name in (*(step.through or step.writes), *step.needs):
        if not _has_its_own(subject, name):
            message = f"`{subject.__name__}` has no method `{name}` yet; run the cell that defines it."
            return _result(step, "not attempted", message)
    return None


def _has_its_own(subject: Any, name: str) -> bool:
    """Whether the class has this method; the `__init__` of every class makes nothing, and `__new__` may do instead."""
    names = ("__new__", "__init__") if name == "__init__" else (name,)
    return any(getattr(subject, name, None) is not getattr(object, name, None) for name in names)


def _is_refimpls(step: Step, subject: Any) -> bool:
    """Whether an answer's code comes from refimpl's files, as a copy of a function does that refuses nothing itself."""
    names = () if step.through else step.writes
    answers = [getattr(subject, name, None) for name in names] if step.writes else [subject]
    codes = [getattr(getattr(answer, "__func__", answer), "__code__", None) for answer in answers]
    return any(code is not None and code.co_filename.startswith(_REFIMPL) for code in codes)


def _kind_of(subject: Any) -> str:
    if subject is None:
        return "`None`"
    if isinstance(subject, type):
        return f"the class `{subject.__name__}`"
    if callable(subject) and hasattr(subject, "__name__"):
        return f"the function `{subject.__name__}`"
    return f"an object of type `{type(subject).__name__}`"


def _stands_on_sand(step: Step, subject: Any, time_limit: float) -> CheckResult | None:
    """The result where an earlier step that this one builds on does not hold yet."""
    for earlier in map(find, step.after):
        outcome = examine(earlier, subject, time_limit).outcome
        if outcome == "not attempted":
            return _result(step, outcome, f"This step builds on {earlier.exercise_id}, which is not attempted yet.")
        if outcome not in ("passed", "not yours"):
            message = f"This step builds on {earlier.exercise_id}, which does not pass yet; mend that one first."
            return _result(step, "wrong", message)
    return None


def _insist_on_every_property(step: Step, log: Log, failure: Failure | None) -> None:
    """A check that compares nothing, or something that it does not say, must not be believed."""
    names = {RUNS, *step.properties}
    unsaid = (log.tally.keys() | log.broken) - names
    never = names - log.tally.keys() if failure is None else set()
    if unsaid or never:
        fault = f"compared nothing for: {', '.join(sorted(never))}" if never else f"names no property {unsaid}"
        raise RuntimeError(f"{step.exercise_id} {fault}; the check is at fault, not your code")


def _timed_out(step: Step, log: Log, limit: float, stopped: bool, printed: str) -> CheckResult:
    operation = log.lines[-1] if log.lines else step.subject
    message = (
        f"`{operation}` had not returned when the check's {limit:g} seconds were over; look for a loop whose condition "
        f"never changes."
    )
    if not stopped:
        message += " It could not be stopped and still runs: restart the kernel."
    trace = (*log.lines[:-1], f"{operation}    # did not return")
    return _result(step, "timed out", message, trace=trace, printed=printed)


def _passed(step: Step, log: Log) -> CheckResult:
    message = f"{len(step.properties) + 1} properties held on {log.histories} histories."
    return _result(step, "passed", message, points=float(step.points))


def _failed(step: Step, failure: Failure, log: Log) -> CheckResult:
    cause, lines = failure.cause, failure.lines
    operation = lines[-1] if lines else step.subject
    outcome: Outcome
    if not isinstance(cause, Violation):
        outcome, message, last = (
            "raised",
            _what_was_raised(operation, failure.asked, cause),
            f"raised {type(cause).__name__}",
        )
    elif failure.misconception is not None:
        outcome, message = (
            "misconception",
            step.misconceptions[failure.misconception].format(**cause.evidence),
        )
        last = f"{cause.should}, but {cause.but}"
    else:
        outcome, message = "wrong", f"`{operation}`: {cause.should}, but {cause.but}."
        last = f"{cause.should}, but {cause.but}"
    return _result(
        step,
        outcome,
        message,
        points=_partial_credit(step, log),
        misconception=failure.misconception,
        trace=(*lines[:-1], f"{operation}    # {last}"),
        printed=failure.printed,
    )


def _partial_credit(step: Step, log: Log) -> float:
    """The share of the properties that held every time; to run without an error counts and, alone, earns nothing."""
    held = [name for name in step.properties if name in log.tally and name not in log.broken]
    return round(step.points * len(held) / (len(step.properties) + 1), 2)


def _result(
    step: Step,
    outcome: Outcome,
    message: str,
    *,
    points: float = 0.0,
    misconception: str | None = None,
    trace: tuple[str, ...] = (),
    printed: str = "",
) -> CheckResult:
    if len(trace) > LINES:
        trace = (trace[0], f"…    # {len(trace) - LINES + 1} more", *trace[2 - LINES :])
    return CheckResult(
        step.exercise_id, step.title, outcome, points, step.points, message, misconception, trace, printed
    )


def _what_was_raised(operation: str, asked: str, error: BaseException) -> str:
    """One sentence, with the learner's own line; never a traceback."""
    sentence = f"`{operation}` ended in {said(error)}"
    if asked:
        sentence = f"After `{operation}`, `{asked}` ended in {said(error)}"
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(NOT_THE_LEARNERS)]
    if not frames:
        return f"{sentence}."
    line = one_line(frames[-1].line or linecache.getline(frames[-1].filename, frames[-1].lineno or 0))
    return f"{sentence}, at your line `{line}`." if line else f"{sentence}."

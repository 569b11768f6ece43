"""Plays histories of a step on the learner's object and says what was found.

Every history has a seed of its own, so the same code gets the same answer everywhere. The first failure with a name
is preferred to one without; it is then cut down to the shortest history that still shows it.
"""

from __future__ import annotations

import dataclasses
import inspect
import linecache
import os
import random
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from refimpl.checks import sandbox
from refimpl.checks.result import CheckResult
from refimpl.checks.step import (
    RUNS,
    History,
    Log,
    NotAttempted,
    NotYours,
    Operation,
    Raised,
    Setup,
    Step,
    Violation,
    World,
)

TIME_LIMIT = 10.0  # seconds for one check, shortest history included
RANDOM_HISTORIES = 60
OPERATIONS = 24  # operations in a random history
SHRINK_TRIES = 500

_REFIMPL = str(Path(__file__).parents[1]) + os.sep
_NOT_THE_LEARNERS = (_REFIMPL, *{sysconfig.get_path(name) + os.sep for name in ("stdlib", "purelib", "platlib")})


@dataclasses.dataclass(frozen=True, slots=True)
class Failure:
    """One history that shows what is wrong."""

    setup: Setup
    operations: tuple[Operation, ...]
    lines: tuple[str, ...]
    cause: Violation | Raised

    @property
    def misconception(self) -> str | None:
        return self.cause.misconception if isinstance(self.cause, Violation) else None

    def same_cause(self, other: Failure | None) -> bool:
        """Whether both show the same thing: the property and misconception, or the type of the error."""
        return other is not None and _kind(self.cause) == _kind(other.cause)


def check(exercise_id: str, subject: Any, **context: Any) -> CheckResult:
    """Check the learner's `subject`, say the result in one printed sentence, and return it for the notebook to show.

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
    """
    from refimpl.checks.catalogue import find

    step = find(exercise_id)
    if context:
        raise ValueError(f"{exercise_id} takes the {step.subject} alone, not {', '.join(context)}")
    result = examine(step, subject)
    print(result.sentence)
    return result


def examine(step: Step, subject: Any, time_limit: float = TIME_LIMIT) -> CheckResult:
    """Check `subject` against `step`, printing nothing."""
    unfit = _unfit(step, subject) or _stands_on_sand(step, subject, time_limit)
    if unfit is not None:
        return unfit
    log = Log()
    with sandbox.silence() as printed:
        try:
            with sandbox.refused(step.reference):
                failure = sandbox.within(time_limit, lambda: _search(step, subject, log))
        except NotAttempted:
            return _not_attempted(step, f"`{log.lines[-1]}` still ends in `raise NotImplementedError()`")
        except NotYours:
            return _not_yours(step)
        except sandbox.OutOfTime as out_of_time:
            return _timed_out(step, log, time_limit, out_of_time.stopped, printed.text)
    if failure is None:
        return _passed(step, log)
    return _failed(step, failure, log, printed.text)


def _search(step: Step, subject: Any, log: Log) -> Failure | None:
    """The failure to show, cut down; None when every history went well."""
    chosen: Failure | None = None
    for setup, next_operation in _histories(step):
        failure = _play(step, subject, setup, next_operation, log)
        if failure is not None and (chosen is None or (failure.misconception and not chosen.misconception)):
            chosen = failure
    return None if chosen is None else _shrink(step, subject, chosen)


def _histories(step: Step) -> Iterator[tuple[Setup, Callable[[World], Operation | None]]]:
    """The examples, then random lives."""
    for example in step.examples:
        yield example.setup, _script(example.operations)
    for number in range(RANDOM_HISTORIES):
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
    step: Step, subject: Any, setup: Setup, next_operation: Callable[[World], Operation | None], log: Log
) -> Failure | None:
    """One history in a fresh world, up to its end or its first failure."""
    log.lines.clear()
    log.reached = not step.writes
    operations: list[Operation] = []
    try:
        world = step.world(subject, setup, log)
        while (operation := next_operation(world)) is not None:
            operations.append(operation)
            log.reached |= operation[0] in step.writes
            world.perform(operation)
    except (Violation, Raised) as cause:
        return Failure(setup, tuple(operations), tuple(log.lines), cause)
    return None


def _shrink(step: Step, subject: Any, failure: Failure) -> Failure:
    """The shortest history in the smallest world that still fails for the same cause."""
    tries = SHRINK_TRIES
    improved = True
    while improved and tries > 0:
        improved = False
        for setup, operations in _shorter(failure):
            tries -= 1
            shorter = _play(step, subject, setup, _script(operations), Log())
            if shorter is not None and failure.same_cause(shorter) and _size(shorter) < _size(failure):
                failure, improved = shorter, True
                break
    return failure


def _shorter(failure: Failure) -> Iterator[tuple[Setup, tuple[Operation, ...]]]:
    """Histories one operation shorter, then the same in a smaller world."""
    operations = failure.operations
    for i in range(len(operations)):
        yield failure.setup, operations[:i] + operations[i + 1 :]
    for name, value in failure.setup.items():
        for smaller in range(1, value):
            yield {**failure.setup, name: smaller}, operations


def _size(failure: Failure) -> tuple[int, int]:
    return len(failure.operations), sum(failure.setup.values())


def _kind(cause: Violation | Raised) -> tuple[str, str | None]:
    if isinstance(cause, Violation):
        return cause.name, cause.misconception
    return RUNS, type(cause.error).__name__


def _unfit(step: Step, subject: Any) -> CheckResult | None:
    """The result for a subject that cannot be checked at all: the wrong kind of thing, no method yet, refimpl's own."""
    is_class = bool(step.writes)
    if is_class != isinstance(subject, type) or not callable(subject):
        kind = "class" if is_class else "function"
        article = "an instance of " if not callable(subject) else ""
        message = (
            f"this check wants the {kind} `{step.subject}` itself, `check(\"{step.exercise_id}\", {step.subject})`, "
            f"and was given {article}`{type(subject).__name__}`"
        )
        return CheckResult(step.exercise_id, step.title, "wrong", 0.0, step.points, message + ".")
    functions = [getattr(subject, name, None) for name in step.writes] or [subject]
    if any(_is_refimpl(function) for function in functions):
        return _not_yours(step)
    for name in (*step.writes, *step.needs):
        if not callable(getattr(subject, name, None)):
            return _not_attempted(step, f"`{step.subject}` has no `{name}` yet; run the cell that defines it")
    return None


def _stands_on_sand(step: Step, subject: Any, time_limit: float) -> CheckResult | None:
    """The result where an earlier step that this one builds on does not hold yet."""
    from refimpl.checks.catalogue import find

    for earlier in map(find, step.after):
        result = examine(earlier, subject, time_limit)
        if result.outcome == "not attempted":
            return _not_attempted(step, f"it builds on {earlier.exercise_id}, which is not attempted yet")
        if result.outcome not in ("passed", "not yours"):
            message = f"it builds on {earlier.exercise_id}, which does not pass yet; mend that one first."
            return CheckResult(step.exercise_id, step.title, "wrong", 0.0, step.points, message)
    return None


def _is_refimpl(function: Any) -> bool:
    code = getattr(inspect.unwrap(function), "__code__", None) if callable(function) else None
    return code is not None and code.co_filename.startswith(_REFIMPL)


def _not_attempted(step: Step, why: str) -> CheckResult:
    return CheckResult(step.exercise_id, step.title, "not attempted", 0.0, step.points, why + ".")


def _not_yours(step: Step) -> CheckResult:
    message = "this is refimpl's own code at work; the points are for an answer that you wrote."
    return CheckResult(step.exercise_id, step.title, "not yours", 0.0, step.points, message)


def _timed_out(step: Step, log: Log, limit: float, stopped: bool, printed: str) -> CheckResult:
    operation = log.lines[-1] if log.lines else step.subject
    message = f"`{operation}` did not return within {limit:g} seconds; look for a loop whose condition never changes."
    if not stopped:
        message += " It catches everything, so it could not be stopped: restart the kernel."
    lines = (*log.lines[-6:-1], f"{operation}    # did not return")
    return CheckResult(
        step.exercise_id, step.title, "timed out", 0.0, step.points, message, trace=lines, printed=printed
    )


def _passed(step: Step, log: Log) -> CheckResult:
    names = (RUNS, *step.properties)
    never = [name for name in names if not log.tally.get(name)]
    if never:
        raise RuntimeError(f"{step.exercise_id} compared nothing for: {', '.join(never)}; the check is at fault")
    histories = len(step.examples) + RANDOM_HISTORIES
    message = f"{len(names)} properties held on {histories} histories."
    return CheckResult(step.exercise_id, step.title, "passed", float(step.points), step.points, message)


def _failed(step: Step, failure: Failure, log: Log, printed: str) -> CheckResult:
    cause = failure.cause
    names = (RUNS, *step.properties)
    held = sum(1 for name in names if log.tally.get(name) and name not in log.broken)
    points = round(step.points * held / len(names), 2)
    if isinstance(cause, Raised):
        outcome, message = "raised", _what_was_raised(failure.lines[-1], cause.error)
        last = f"    # raised {type(cause.error).__name__}"
    elif cause.misconception in step.misconceptions:
        outcome, message = "misconception", step.misconceptions[cause.misconception].format(**cause.evidence)
        last = f"    # expected: {cause.expected}; got: {cause.got}"
    else:
        outcome, message = "wrong", f"after `{failure.lines[-1]}`, {cause.expected} was expected; it was {cause.got}."
        last = f"    # expected: {cause.expected}; got: {cause.got}"
    lines = (*failure.lines[:-1], failure.lines[-1] + last)
    return CheckResult(
        step.exercise_id,
        step.title,
        outcome,  # type: ignore[arg-type]  (one of the three literals above)
        points,
        step.points,
        message,
        misconception=failure.misconception,
        trace=lines,
        printed=printed,
    )


def _what_was_raised(operation: str, error: BaseException) -> str:
    """One sentence, with the learner's own line; never a traceback."""
    text = str(error)
    said = f"{type(error).__name__}: {text}" if text else type(error).__name__
    sentence = f"`{operation}` raised {said.splitlines()[0]}"
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(_NOT_THE_LEARNERS)]
    if not frames:
        return sentence + "."
    line = (frames[-1].line or linecache.getline(frames[-1].filename, frames[-1].lineno or 0)).strip()
    return f"{sentence}, at your line `{line}`." if line else sentence + "."

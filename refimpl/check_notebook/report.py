"""What is said of a notebook: a line a step, a line a fault, a total."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from refimpl.checks import CheckResult
from refimpl.checks.step import Step


class CannotRun(Exception):
    """Nothing can be said of the notebook; the text says why."""


@dataclasses.dataclass(frozen=True, slots=True)
class StepReport:
    """What the clean run says of one step: the check's result, and what is wrong with the check cell itself."""

    result: CheckResult
    faults: tuple[str, ...]

    @property
    def is_good(self) -> bool:
        """Whether there is nothing to mend."""
        return self.result.passed and not self.faults


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """All that is said of one notebook. `faults` are those of the notebook as a whole, `notes` take nothing away."""

    path: str
    steps: tuple[StepReport, ...]
    faults: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def is_good(self) -> bool:
        """Whether every step passed and nothing is wrong."""
        return not self.faults and all(step.is_good for step in self.steps)

    @property
    def points(self) -> float:
        """Of all steps together."""
        return round(sum(step.result.points for step in self.steps), 2)

    @property
    def max_points(self) -> int:
        """Of all steps together."""
        return sum(step.result.max_points for step in self.steps)

    def lines(self) -> Iterator[str]:
        """The report as text: a line a step, a line a fault, a total."""
        yield self.path
        for step in self.steps:
            result = step.result
            text = " ".join([*step.faults, *result.message.split()])
            points = f"{result.points:g} of {result.max_points}"
            yield f"  {result.exercise_id:<24} {result.outcome:<13} {points:>10}   {text}"
        yield from (f"  Wrong: {fault}" for fault in self.faults)
        yield from (f"  Note: {note}" for note in self.notes)
        yield self._total()

    def _total(self) -> str:
        passed = sum(step.result.passed for step in self.steps)
        untouched = [step.result.exercise_id for step in self.steps if step.result.outcome == "not attempted"]
        total = f"  total: {self.points:g} of {self.max_points} points, {passed} of {len(self.steps)} steps passed"
        return total + f"; not attempted: {', '.join(untouched)}" * bool(untouched)

    def as_json(self) -> dict[str, Any]:
        """The report for programs."""
        return {
            "path": self.path,
            "good": self.is_good,
            "points": self.points,
            "max_points": self.max_points,
            "steps": [{**dataclasses.asdict(step.result), "faults": step.faults} for step in self.steps],
            "faults": self.faults,
            "notes": self.notes,
        }


def result_of(found: dict[str, Any]) -> CheckResult:
    """The result that `dataclasses.asdict` made this of; raises KeyError, TypeError or ValueError for anything else."""
    return CheckResult(**{**found, "trace": tuple(found["trace"])})


def nothing_found(step: Step, outcome: Any, message: str) -> CheckResult:
    """The result of a step that a check could not be asked about."""
    return CheckResult(step.exercise_id, step.title, outcome, 0.0, step.points, message)

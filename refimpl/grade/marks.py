"""What a submission has earned, kept in a file of its own as soon as it is known, and told as a table and as CSV.

Owns `marks/`: one JSON file a student and chapter, written whole or not at all. A record carries the fingerprint of
what was marked, so a run that begins again knows what is done, and marks again only what has changed.
"""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import refimpl
from refimpl.check_notebook.report import Report, StepReport, nothing_found, result_of
from refimpl.checks import CheckResult
from refimpl.checks.step import Step
from refimpl.grade.apart import Found
from refimpl.grade.limits import Limits
from refimpl.work import chapter_steps

COLUMNS = ("student", "chapter", "step", "outcome", "points", "max_points", "says")


class CannotEnter(Exception):
    """The gradebook did not take marks; the text says whose and why."""


@dataclasses.dataclass(frozen=True, slots=True)
class Marks:
    """The marks of one student in one chapter.

    Args:
        student: the name of the folder that the submission came from.
        assignment: such as "03_uncached_allocator".
        fingerprint: of what was marked, and by which checks.
        report: the steps, and what is said of the notebook.
        problem: why it could not be marked to its end, in a sentence, or "".
        seconds, memory: what marking took; bytes.
        walls: what stood around it, "" when it was not run.
        limits: what it was allowed.
    """

    student: str
    assignment: str
    fingerprint: str
    report: Report
    problem: str
    seconds: float
    memory: int
    walls: str
    limits: str

    @property
    def digest(self) -> str:
        """All that was found, as one number: marks of the same notebook may differ from those of an earlier run."""
        found = json.dumps([self.fingerprint, self.problem, self.report.as_json()], sort_keys=True)
        return hashlib.sha256(found.encode()).hexdigest()

    @property
    def remarks(self) -> list[str]:
        """What is said of the notebook as a whole, the gravest first."""
        how_far = "Not marked to its end" if self.walls else "Not run"
        return [*([f"{how_far}: {self.problem}."] if self.problem else []), *self.report.faults]

    def rows(self) -> Iterator[dict[str, Any]]:
        """Rows for CSV: one a step, and one a remark about the notebook as a whole."""
        who = {"student": self.student, "chapter": self.assignment}
        for step in self.report.steps:
            result = step.result
            says = " ".join([*step.faults, *result.message.split()])
            points = {"outcome": result.outcome, "points": result.points, "max_points": result.max_points}
            yield {**who, "step": result.exercise_id, **points, "says": says}
        for remark in (*self.remarks, *self.report.notes):
            yield {**who, "step": "", "outcome": "", "points": "", "max_points": "", "says": remark}


def marks_of(student: str, assignment: str, fingerprint: str, found: Found, limits: Limits) -> Marks:
    """The marks that come of what was found; a step that was not reached has no points, and says why.

    Args:
        student, assignment: whose, and of what.
        fingerprint: of the notebook; see `fingerprint`.
        found: in it.
        limits: that it had.
    """
    wanted, report, problem = chapter_steps(assignment[:2]), None, found.problem
    if found.report is not None:
        try:
            report = _report(_writable(found.report), wanted)
        except (KeyError, TypeError, ValueError, AttributeError):
            problem = "what was said of the notebook is no report of it"
    if report is None:
        outcome, why = "raised" if found.walls else "not attempted", f"It was not checked: {problem}."
        known = _known(found, wanted)
        steps = [known.get(step.exercise_id) or nothing_found(step, outcome, why) for step in wanted]
        report = Report(assignment, tuple(StepReport(result, ()) for result in steps), (), ())
    seconds = round(found.seconds, 1)
    return Marks(student, assignment, fingerprint, report, problem, seconds, found.memory, found.walls, limits.told())


def _known(found: Found, wanted: Sequence[Step]) -> dict[str, CheckResult]:
    """Exercise id -> the results that came before the end, those of the chapter's steps."""
    points = {step.exercise_id: step.points for step in wanted}
    known = {}
    for each in found.results if found.report is None else ():
        with contextlib.suppress(KeyError, TypeError, ValueError):
            result = result_of(_writable(each))
            if points.get(result.exercise_id) == result.max_points:
                known[result.exercise_id] = result
    return known


def _writable(found: Any) -> Any:
    """What was found, without characters that no file can hold."""
    return json.loads(json.dumps(found, ensure_ascii=False).encode("utf-8", "replace"))


def _report(found: dict[str, Any], wanted: Sequence[Step] | None = None) -> Report:
    """The report, as JSON has it; raises ValueError when it is not about the steps that are wanted."""
    steps = []
    for step in found["steps"]:
        step = dict(step)
        faults = tuple(step.pop("faults"))
        steps.append(StepReport(result_of(step), faults))
    said = [(step.result.exercise_id, step.result.max_points) for step in steps]
    if wanted is not None and said != [(step.exercise_id, step.points) for step in wanted]:
        raise ValueError(f"the report is about {said}")
    return Report(found["path"], tuple(steps), tuple(found["faults"]), tuple(found["notes"]))


def fingerprint(notebook: bytes) -> str:
    """What the marks depend on: the notebook and the checks."""
    return hashlib.sha256(notebook + package().encode()).hexdigest()


@cache
def package() -> str:
    """The source of refimpl, as one number. Other checks, other marks: two that differ must not mark one class."""
    root = Path(refimpl.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()


class Store:
    """The folder `marks/`.

    Args:
        folder: made when the first marks are kept.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __getitem__(self, of: tuple[str, str]) -> Marks | None:
        """The marks of a student in an assignment, None where there are none that can be read."""
        try:
            kept = json.loads(self._path(*of).read_text("utf-8"))
            return Marks(**{**kept, "report": _report(kept["report"])})
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def __iter__(self) -> Iterator[Marks]:
        """All marks that are kept, by assignment and student."""
        paths = (self.folder / "students").glob("*/*.json")
        found = [self[path.parent.name, path.stem] for path in paths]
        yield from sorted((each for each in found if each), key=lambda each: (each.assignment, each.student))

    def keep(self, marks: Marks) -> None:
        """Write the marks whole, or not at all."""
        path = self._path(marks.student, marks.assignment)
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = {field.name: getattr(marks, field.name) for field in dataclasses.fields(marks)}
        text = json.dumps({**kept, "report": marks.report.as_json()}, indent=1, ensure_ascii=False)
        unfinished = _unfinished(path)
        unfinished.write_text(text + "\n", "utf-8")
        os.replace(unfinished, path)

    def _path(self, student: str, assignment: str) -> Path:
        return self.folder / "students" / student / f"{assignment}.json"


def write_csv(marks: Iterable[Marks], path: Path) -> None:
    """One row a step; see `COLUMNS`."""
    unfinished = _unfinished(path)
    with unfinished.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(
            {name: _no_formula(value) for name, value in row.items()} for each in marks for row in each.rows()
        )
    os.replace(unfinished, path)


def _unfinished(path: Path) -> Path:
    """Beside the file, and of this process alone."""
    return path.with_suffix(f".{os.getpid()}.unfinished")


def _no_formula(value: Any) -> Any:
    """A learner's text that a spreadsheet would take for a formula, marked as text."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value


def table(marks: Sequence[Marks]) -> Iterator[str]:
    """A line a submission: who, what, points, and what somebody should look at."""
    width = max((len(each.student) for each in marks), default=0)
    for each in marks:
        points = f"{each.report.points:g} of {each.report.max_points}"
        remark = each.remarks[0] if each.remarks else ""
        more = f" (and {len(each.remarks) - 1} more)" if len(each.remarks) > 1 else ""
        yield f"{each.student:<{width}}  {each.assignment:<26}  {points:>11}  {_short(remark)}{more}".rstrip()


def _short(text: str, limit: int = 100) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"

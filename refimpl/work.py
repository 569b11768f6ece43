"""What a learner has in `my_work/`: each chapter's saved notebook, its cells run in a module of their own, and checked.

Owns the reading and nothing of the files: saved outputs are not looked at, so what is said here holds of the code that
is there now. A chapter is known by the ids of its check cells, whatever its file is called; of two copies the one saved
last counts.
"""

from __future__ import annotations

import builtins
import contextlib
import dataclasses
import io
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from refimpl.checks import CheckResult, catalogue
from refimpl.checks.catalogue import chapter_numbers
from refimpl.checks.engine import examine
from refimpl.checks.sandbox import OutOfTime, within
from refimpl.checks.step import Step, one_line
from refimpl.exercise import Cell, Namespace, Runner, answers_of, read

TIME_LIMIT = 20.0  # seconds for all cells of a notebook but its checks


class NoWork(Exception):
    """There is nothing to read; the text says what is missing and which command makes it."""


@dataclasses.dataclass(frozen=True)
class Notebook:
    """One chapter as the learner saved it last.

    Args:
        number: of the chapter, such as "03".
        path: of the file.
        saved: when.
        cells: its code cells.
    """

    number: str
    path: Path
    saved: datetime
    cells: list[Cell]
    _problems: dict[str, str] = dataclasses.field(default_factory=dict, repr=False)  # grade id -> what its cell did
    _not_installed: list[str] = dataclasses.field(default_factory=list, repr=False)  # modules that its cells import

    @cached_property
    def names(self) -> Namespace:
        """What its cells define. A cell that raises leaves out what it would have defined, and the others go on."""
        runner = Runner(f"my_chapter_{self.number}", str(self.path))
        names = runner.module()
        try:
            with _quiet():
                errors = within(TIME_LIMIT, lambda: list(runner.run_in(names, self.cells)))
            self._problems.update({error.grade_id: f"ended in {_said(error.__cause__)}" for error in errors})
            causes = [error.__cause__ for error in errors]
            self._not_installed.extend(str(cause.name) for cause in causes if isinstance(cause, ModuleNotFoundError))
        except OutOfTime:
            self._problems[""] = f"its cells had not ended after {TIME_LIMIT:g} seconds"
        return names

    def result(self, step: Step) -> CheckResult:
        """What the step's check says of the subject that the notebook defines."""
        subject, problem = self.names.get(step.subject), self.problem(step)
        if problem is not None:
            return CheckResult(step.exercise_id, step.title, "raised", 0.0, step.points, problem)
        if subject is None:
            message = self._with_missing(f"The notebook defines no `{step.subject}`.")
            return CheckResult(step.exercise_id, step.title, "not attempted", 0.0, step.points, message)
        try:
            return examine(step, subject)
        except ModuleNotFoundError as error:
            message = not_installed(str(error.name))
            return CheckResult(step.exercise_id, step.title, "not attempted", 0.0, step.points, message)

    def problem(self, step: Step) -> str | None:
        """Why the step's answers cannot be checked: one of them raised when it ran, or the notebook did not end."""
        _ = self.names
        if "" in self._problems:
            return f"The notebook cannot be read: {self._problems['']}."
        for cell in answers_of(step.exercise_id, self.cells) or []:
            if cell.grade_id in self._problems:
                return self._with_missing(f"The cell {cell.grade_id} {self._problems[cell.grade_id]}.")
        return None

    def _with_missing(self, sentence: str) -> str:
        """The sentence, and before it what is not installed: names that are missing may come from there."""
        return " ".join([*(not_installed(module) for module in self._not_installed[:1]), sentence])


def notebooks(folder: Path | str) -> dict[str, Notebook]:
    """The chapters in a folder, by number; files that are no exercise of the course are passed over.

    Raises:
        NoWork: for a folder that does not exist or holds no exercise.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise NoWork(f"there is no folder {folder}: `make work` makes my_work and copies the exercises there")
    found: dict[str, Notebook] = {}
    for path in sorted(folder.rglob("*.ipynb")):
        if any(part.startswith(".") for part in path.relative_to(folder).parts):
            continue
        notebook = _notebook(path)
        if notebook is not None and not (notebook.number in found and found[notebook.number].saved >= notebook.saved):
            found[notebook.number] = notebook
    if not found:
        raise NoWork(f"{folder} holds no exercise of the course: `make work` copies them there")
    return dict(sorted(found.items()))


def _notebook(path: Path) -> Notebook | None:
    """The exercise at `path`, None where it is none."""
    try:
        cells = read(path)
    except (ValueError, OSError):
        return None
    numbers = [number for cell in cells if cell.is_check and (number := cell.grade_id[:2]) in chapter_numbers()]
    if not numbers:
        return None
    return Notebook(numbers[0], path, datetime.fromtimestamp(path.stat().st_mtime), cells)


def results(notebook: Notebook) -> Iterator[CheckResult]:
    """What the checks of the chapter say, in course order, as soon as it is known."""
    return (notebook.result(step) for step in chapter_steps(notebook.number))


def chapter_steps(number: str) -> list[Step]:
    """The steps of a chapter; raises ModuleNotFoundError when it needs what is not installed."""
    return list(catalogue.chapter_steps(number).values())


def not_installed(module: str) -> str:
    """What to say of a module that cannot be imported.

    >>> not_installed("torch.nn")
    'This needs torch, which is not installed here; `make lab` installs what the course needs.'
    """
    package = module.partition(".")[0]
    return f"This needs {package}, which is not installed here; `make lab` installs what the course needs."


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """What cells print is dropped, and `input` does not wait for anybody."""
    ask: Callable[..., Any] = builtins.input
    builtins.input = _nobody_answers
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        builtins.input = ask


def _nobody_answers(prompt: object = "") -> str:
    raise RuntimeError("nobody answers input() here")


def _said(error: BaseException | None) -> str:
    return one_line(f"{type(error).__name__}: {error}")

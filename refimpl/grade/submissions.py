"""Finds submissions in folders, whatever they were downloaded from, and says of each whose it is and for which chapter.

A student is a folder: the first one below a folder that was named, and all notebooks in it are that student's. Owns
what is read of a submitted file before it is run: its cells, without what they once printed.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from refimpl.checks.catalogue import chapter_numbers
from refimpl.grade.limits import MIB, Limits

_FORBIDDEN = str.maketrans("[]*?", "()--")  # nbgrader looks for folders by patterns, in which these mean something


@dataclasses.dataclass(frozen=True, slots=True)
class Submission:
    """A notebook that somebody handed in.

    Args:
        student: as nbgrader will know them.
        assignment: the chapter's folder name in `exercises/`.
        path: of the file.
        notebook: the file without outputs, as it will be run; empty where it cannot be.
        problem: why it cannot be run, or "".
        notes: what a reader should know of how it was found.
    """

    student: str
    assignment: str
    path: Path
    notebook: bytes
    problem: str = ""
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What to call it."""
        return f"{self.student}, {self.assignment}"

    @property
    def file(self) -> str:
        """The name of its notebook, as released."""
        return f"{self.assignment}.ipynb"


class NothingToGrade(Exception):
    """A folder is missing, or holds no submission; the text says which."""


def submissions(folders: Iterable[Path], assignments: Iterable[str], limits: Limits) -> list[Submission]:
    """All submissions below these folders, by chapter and student.

    Args:
        folders: in each of them a folder a student.
        assignments: the course's.
        limits: a file may be so large.

    Raises:
        NothingToGrade: for a folder that does not exist, or when all of them together hold no notebook.
    """
    known, found = {name[:2]: name for name in assignments}, list[Submission]()
    for folder in folders:
        if not folder.is_dir():
            raise NothingToGrade(f"there is no folder {folder}")
        found.extend(_submission(path, folder, known, limits) for path in _notebooks(folder))
    if not found:
        where = ", ".join(map(str, folders))
        raise NothingToGrade(f"no notebook lies in {where}: a folder a student is wanted, with notebooks in it")
    return sorted(_one_each(found), key=lambda each: (each.assignment, each.student))


def _notebooks(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*.ipynb")):
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts):
            yield path


def _submission(path: Path, folder: Path, known: dict[str, str], limits: Limits) -> Submission:
    student, *below = path.relative_to(folder).parts
    return read_submission(path, student if below else path.stem, _chapter_of_name(below, known), known, limits)


def read_submission(path: Path, student: str, said: str | None, known: dict[str, str], limits: Limits) -> Submission:
    """The notebook at `path` as a student's submission.

    Args:
        path: of the file.
        student: whose it is.
        said: the number of the chapter for which it was handed in, None where only its cells can tell.
        known: number -> assignment, of all chapters.
        limits: it may be so large.
    """
    student = student.translate(_FORBIDDEN).strip()
    notebook, problem, number = b"", "", None
    try:
        cells = slim(path, limits)
        notebook, number = _as_bytes(cells), _chapter_of_cells(cells)
        if number is None:
            problem = "no cell of the notebook is marked as an answer or a check of a step"
        elif said is not None and said != number:
            problem = f"the notebook is of chapter {number}, and was handed in for chapter {said}"
    except Unreadable as error:
        problem = str(error)
    assignment = known.get(said or number or "", "")
    if not assignment:
        problem = problem or f"chapter {said or number} is not one of this course's exercises"
    return Submission(student, assignment, path, b"" if problem else notebook, problem)


def _chapter_of_name(parts: list[str], known: dict[str, str]) -> str | None:
    """The chapter that the file's folders or name say, the innermost first."""
    for part in reversed(parts):
        for number, name in known.items():
            if name in part or re.match(rf"{number}(?!\d)", part):
                return number
    return None


def _chapter_of_cells(cells: list[dict[str, Any]]) -> str | None:
    for cell in cells:
        number = str(cell["metadata"].get("nbgrader", {}).get("grade_id", ""))[:2]
        if number in chapter_numbers():
            return number
    return None


class Unreadable(Exception):
    """The file is no notebook that could be run; the text says why."""


def slim(path: Path, limits: Limits) -> list[dict[str, Any]]:
    """The cells of the notebook at `path` with their sources, marks and ids, and nothing that they printed.

    Args:
        path: of the file.
        limits: it may be so large.

    Raises:
        Unreadable: for a file that is too large, no JSON, or no notebook.
    """
    size = path.stat().st_size
    if size > limits.notebook:
        raise Unreadable(f"the file has {size / MIB:.0f} MiB, the limit is {limits.notebook // MIB}")
    try:
        nb = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"the file is not a Jupyter notebook: it is {'not JSON' if size else 'empty'}") from error
    try:
        return [_slim_cell(cell) for cell in nb["cells"]]
    except (KeyError, TypeError, AttributeError) as error:
        raise Unreadable("the file is not a Jupyter notebook: its JSON lists no cells") from error


def _slim_cell(cell: dict[str, Any]) -> dict[str, Any]:
    source, marked = cell["source"], cell["metadata"].get("nbgrader")
    return {
        "cell_type": str(cell["cell_type"]),
        "id": str(cell.get("id", "")),
        "metadata": {"nbgrader": marked} if isinstance(marked, dict) else {},
        "source": source if isinstance(source, str) else "".join(source),
    }


def _as_bytes(cells: list[dict[str, Any]]) -> bytes:
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}).encode()


def _one_each(found: Iterable[Submission]) -> Iterator[Submission]:
    """One a student and chapter: of several files the one saved last."""
    of: dict[tuple[str, str], list[Submission]] = {}
    for each in found:
        of.setdefault((each.student, each.assignment or str(each.path)), []).append(each)
    for several in of.values():
        last = max(several, key=lambda each: each.path.stat().st_mtime)
        others = [f"{each.path} was saved earlier and does not count." for each in several if each is not last]
        yield dataclasses.replace(last, notes=tuple(others))

"""Finds submissions in folders, whatever they were downloaded from, and says of each whose it is and for which chapter.

A student is a folder: the first one below a folder that was named, and all notebooks in it are that student's. Owns
what is read of a submitted file before it is run: its cells, without what they once printed.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from refimpl.check_notebook.document import chapter_of
from refimpl.exercise import cell_of
from refimpl.grade.limits import MIB, Limits

_PATTERNS = str.maketrans("[]*?", "()--")  # nbgrader looks for folders by patterns, in which these mean something
_NOBODYS = (".ipynb_checkpoints", "__MACOSX")  # folders that programs leave behind


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
    found = _apart(found)
    if not found:
        where = ", ".join(map(str, folders))
        raise NothingToGrade(f"no notebook lies in {where}: a folder a student is wanted, with notebooks in it")
    return sorted(_one_each(found), key=lambda each: (each.assignment, each.student))


def _notebooks(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*.ipynb")):
        if not any(part in _NOBODYS or part.startswith("._") for part in path.relative_to(folder).parts):
            yield path


def _submission(path: Path, folder: Path, known: dict[str, str], limits: Limits) -> Submission:
    student, *below = path.relative_to(folder).parts
    own = folder / student
    said = _chapter_of_name([*below, path.stem], known)
    return read_submission(path, student if below else path.stem, said, known, limits, own)


def read_submission(
    path: Path, student: str, said: str | None, known: dict[str, str], limits: Limits, own: Path | None = None
) -> Submission:
    """The notebook at `path` as a student's submission.

    Args:
        path: of the file.
        student: whose it is.
        said: the number of the chapter for which it was handed in, None where only its cells can tell.
        known: number -> assignment, of all chapters.
        limits: it may be so large.
        own: the student's folder, out of which no link may lead.
    """
    notebook, problem, number = b"", "", None
    try:
        cells = slim(path, limits, own)
        notebook, number = _as_bytes(cells), chapter_of([cell_of(cell) for cell in cells])
        if number is None:
            problem = "no cell of the notebook is marked as an answer or a check of a step"
        elif said is not None and said != number:
            problem = f"the notebook is of chapter {number}, and was handed in for chapter {said}"
    except Unreadable as error:
        problem = str(error)
    number = said or number or _chapter_of_number(path, own)
    assignment = known.get(number or "", "")
    if not assignment:
        problem = problem or f"chapter {number} is not one of this course's exercises"
    return Submission(student, assignment, path, b"" if problem else notebook, problem)


def _chapter_of_name(parts: list[str], known: dict[str, str]) -> str | None:
    """The chapter whose whole name the file's folders or name hold, the innermost first."""
    found = [number for part in reversed(parts) for number, name in known.items() if name in part]
    return found[0] if found else None


def _chapter_of_number(path: Path, own: Path | None) -> str | None:
    """The number at the head of the file's name or a folder's, for a file whose cells cannot tell."""
    parts = path.relative_to(own).parts if own is not None and own.is_dir() else (path.name,)
    heads = [found[0] for part in reversed(parts) if (found := re.match(r"\d\d(?!\d)", part))]
    return heads[0] if heads else None


def _apart(found: Iterable[Submission]) -> list[Submission]:
    """The same with names that nbgrader and any file system can hold, two students' names never one."""
    names: dict[str, str] = {}  # as found -> as given
    for raw in sorted({each.student for each in found}):
        plain = raw.encode("utf-8", "replace").decode().translate(_PATTERNS)
        plain = "".join(c if c.isprintable() and c not in "/\\" else "-" for c in plain).strip() or "-"
        taken = {name.casefold() for name in names.values()}
        tries = (plain if n == 1 else f"{plain} ({n})" for n in itertools.count(1))
        names[raw] = next(name for name in tries if name.casefold() not in taken)
    return [dataclasses.replace(each, student=names[each.student]) for each in found]


class Unreadable(Exception):
    """The file is no notebook that could be run; the text says why."""


def slim(path: Path, limits: Limits, own: Path | None = None) -> list[dict[str, Any]]:
    """The cells of the notebook at `path` with their sources, marks and ids, and nothing that they printed.

    Args:
        path: of the file.
        limits: it may be so large.
        own: the folder out of which no link may lead.

    Raises:
        Unreadable: for a link out of it, a file that is too large, no JSON, or no notebook.
    """
    try:
        if own is not None and path.exists() and not path.resolve().is_relative_to(own.resolve()):
            raise Unreadable("it is a link to a file outside the student's folder")
        if not path.is_file():
            raise Unreadable("it is no file")
        size = path.stat().st_size
        if size > limits.notebook:
            raise Unreadable(f"the file has {size / MIB:.0f} MiB, the limit is {limits.notebook // MIB}")
        content = path.read_bytes()
    except OSError as error:
        raise Unreadable(f"the file cannot be read: {error.strerror}") from error
    try:
        nb = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"the file is not a Jupyter notebook: it is {'not JSON' if size else 'empty'}") from error
    try:
        return [_slim_cell(cell) for cell in nb["cells"]]
    except (KeyError, TypeError, AttributeError) as error:
        raise Unreadable("the file is not a Jupyter notebook: its JSON lists no cells") from error


def _slim_cell(cell: dict[str, Any]) -> dict[str, Any]:
    kind, source, marked = cell.get("cell_type"), cell.get("source") or "", (cell.get("metadata") or {}).get("nbgrader")
    mark = {}
    if isinstance(marked, dict) and "grade_id" in marked:
        is_ = {name: marked.get(name) is True for name in ("grade", "solution", "locked")}
        mark = {"nbgrader": {"grade_id": str(marked["grade_id"]), **is_}}
    return {
        "cell_type": kind if kind in ("code", "markdown") else "raw",
        "id": str(cell.get("id", "")),
        "metadata": mark,
        "source": source if isinstance(source, str) else "".join(source),
    }


def _as_bytes(cells: list[dict[str, Any]]) -> bytes:
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}).encode()


def _saved(path: Path) -> float:
    """When, in seconds; 0 for what is not there."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _one_each(found: Iterable[Submission]) -> Iterator[Submission]:
    """One a student and chapter: of several files the one saved last."""
    of: dict[tuple[str, str], list[Submission]] = {}
    for each in found:
        of.setdefault((each.student, each.assignment or str(each.path)), []).append(each)
    for several in of.values():
        last = max(several, key=lambda each: (not each.problem, _saved(each.path)))
        why = f"{last.path.name} was saved later, or can be read"
        others = [f"{each.path} does not count: {why}." for each in several if each is not last]
        yield dataclasses.replace(last, notes=tuple(others))

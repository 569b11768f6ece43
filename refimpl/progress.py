"""How far a learner has come: each chapter's points as a bar, and what is next.

Owns the picture and no numbers: all of them are computed afresh by `work` from the saved notebooks, so a bar never says
more than the code in the file. In a terminal `python -m refimpl progress`; in JupyterLab

    from refimpl.progress import progress
    progress("../my_work")
"""

from __future__ import annotations

import dataclasses
import html
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from refimpl import work
from refimpl.checks import CheckResult
from refimpl.checks.catalogue import CHAPTERS

LESSONS_ONLY = {"00": "a lesson, with a first check to try in it", "13": "a lesson"}
LAST = ("13", "after_v0")  # has no checks of which its name could be read
CELLS = 20  # of a bar in a terminal

_STYLE = {
    "frame": "color: var(--jp-ui-font-color1, #212121); background: var(--jp-layout-color1, #ffffff); "
    "font-family: var(--jp-content-font-family, sans-serif); max-width: 60em; padding: 0.4em 1em",
    "row": "display: flex; gap: 1em; align-items: baseline; padding: 0.15em 0",
    "total": "; font-weight: bold; border-top: 1px solid var(--jp-border-color1, #bdbdbd)",
    "name": "flex: 0 0 14em",
    "bar": "flex: 0 0 10em; height: 0.8em; border: 1px solid var(--jp-ui-font-color2, #616161); "
    "background: var(--jp-layout-color1, #ffffff)",
    "done": "height: 100%; background: var(--jp-brand-color1, #1976d2)",
    "points": "flex: 0 0 8em; text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums",
    "next": "flex: 1 1 auto",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Chapter:
    """One line of the picture.

    Args:
        number, name: such as "03" and "uncached allocator".
        path: of the learner's notebook, None without one.
        results: of its steps, in course order; empty without a notebook.
        max_points: of all its steps; 0 for a lesson without an exercise.
        problem: why its steps cannot be checked, if they cannot.
    """

    number: str
    name: str
    path: Path | None
    results: tuple[CheckResult, ...]
    max_points: int
    problem: str = ""

    @property
    def points(self) -> float:
        """Of all steps together."""
        return round(sum(result.points for result in self.results), 2)

    @property
    def open_step(self) -> CheckResult | None:
        """The first step that has not passed."""
        return next((result for result in self.results if not result.passed), None)

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to do that could be done here."""
        return not self.max_points or (self.path is not None and self.open_step is None)

    @property
    def next(self) -> str:
        """What comes next, in words."""
        if not self.max_points:
            return self.problem or LESSONS_ONLY[self.number]
        if self.path is None:
            return "no notebook yet: `make work` copies it"
        step = self.open_step
        return "done" if step is None else f"{step.exercise_id}: {_first_sentence(step.message)}"

    @property
    def out_of(self) -> str:
        """The points in words."""
        return f"{self.points:g} of {self.max_points}" if self.max_points else ""

    def line(self) -> str:
        """The chapter in a terminal."""
        bar = f"[{_bar(self.points, self.max_points)}]" if self.max_points else ""
        return f"{self.number} {self.name:<24} {bar:<{CELLS + 2}} {self.out_of:>10}   {self.next}".rstrip()


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class Progress:
    """All chapters of a learner's folder, as bars in JupyterLab, as text elsewhere. `problem`: why there are none."""

    folder: Path
    chapters: tuple[Chapter, ...]
    problem: str = ""

    @property
    def points(self) -> float:
        """Of all chapters together."""
        return round(sum(chapter.points for chapter in self.chapters), 2)

    @property
    def max_points(self) -> int:
        """Of all chapters together."""
        return sum(chapter.max_points for chapter in self.chapters)

    @property
    def next_chapter(self) -> Chapter | None:
        """The first one in which something is left to do."""
        return next((chapter for chapter in self.chapters if not chapter.is_done), None)

    @property
    def next(self) -> str:
        """Which file to open."""
        chapter = self.next_chapter
        if chapter is None:
            return f"every step has passed; {LAST[0]}_{LAST[1]} is the last lesson"
        step = chapter.open_step
        if step is None:
            return f"`make work`, which copies the exercise of chapter {chapter.number}"
        return f"open {chapter.path}, step {step.exercise_id}"

    def ending(self) -> list[str]:
        """The last two lines."""
        total = f"{self.points:g} of {self.max_points}"
        bar = f"[{_bar(self.points, self.max_points)}]"
        return [f"   {'total':<24} {bar} {total:>10}", f"next: {self.next}"]

    def __repr__(self) -> str:
        return self.problem or "\n".join([*(chapter.line() for chapter in self.chapters), *self.ending()])

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "folder": str(self.folder),
            "points": self.points,
            "max_points": self.max_points,
            "next": self.next,
            "chapters": [
                {
                    "number": chapter.number,
                    "name": chapter.name,
                    "path": chapter.path and str(chapter.path),
                    "points": chapter.points,
                    "max_points": chapter.max_points,
                    "next": chapter.next,
                    "steps": [dataclasses.asdict(result) for result in chapter.results],
                }
                for chapter in self.chapters
            ],
        }

    def _repr_html_(self) -> str:
        if self.problem:
            return f'<div style="{_STYLE["frame"]}">{_prose(self.problem)}</div>'
        rows = [_row(f"{c.number} {c.name}", c.points, c.max_points, _next_html(c)) for c in self.chapters]
        total = _row("total", self.points, self.max_points, "", _STYLE["total"])
        chapter = self.next_chapter
        end = _prose(self.next)
        if chapter is not None and chapter.path is not None and chapter.open_step is not None:
            end = f"open {_link(chapter.path)}, step {html.escape(chapter.open_step.exercise_id)}"
        last = f'<div style="padding: 0.4em 0 0"><strong>Next:</strong> {end}</div>'
        return "\n".join([f'<div class="refimpl-progress" style="{_STYLE["frame"]}">', *rows, total, last, "</div>"])


def progress(folder: Path | str = "my_work") -> Progress:
    """Check everything in a folder, which takes some seconds, and return it as bars for JupyterLab to show."""
    try:
        return Progress(Path(folder), tuple(chapters(folder)))
    except work.NoWork as error:
        return Progress(Path(folder), (), str(error))


def chapters(folder: Path | str) -> Iterator[Chapter]:
    """Every chapter of the course, as soon as its steps are checked.

    Raises:
        work.NoWork: for a folder that does not exist or holds no exercise.
    """
    found = work.notebooks(folder)
    return (_chapter(number, name, found.get(number)) for number, name in _names())


def _names() -> Iterator[tuple[str, str]]:
    """Number and name of each chapter, from its module of checks."""
    for module in CHAPTERS:
        number, _, name = module.removeprefix("ch").partition("_")
        yield number, name.replace("_", " ")
    yield LAST[0], LAST[1].replace("_", " ")


def _chapter(number: str, name: str, notebook: work.Notebook | None) -> Chapter:
    if number in LESSONS_ONLY:
        return Chapter(number, name, None, (), 0)
    try:
        most = sum(step.points for step in work.chapter_steps(number))
    except ModuleNotFoundError as error:
        return Chapter(number, name, None, (), 0, work.not_installed(str(error.name)))
    if notebook is None:
        return Chapter(number, name, None, (), most)
    return Chapter(number, name, notebook.path, tuple(work.results(notebook)), most)


def _bar(points: float, most: int) -> str:
    """A bar of full and empty cells: full only when all points are there, empty only when none is."""
    cells = round(CELLS * points / most) if most else 0
    if 0 < points < most:
        cells = min(max(cells, 1), CELLS - 1)
    return "#" * cells + "-" * (CELLS - cells)


def _first_sentence(message: str) -> str:
    """The first sentence of a message; a dot inside a word or code ends none.

    >>> _first_sentence("`a.free()` should raise 1.5 errors. Or two.")
    '`a.free()` should raise 1.5 errors.'
    """
    found = re.match(r".*?[.!?](?=\s|$)", " ".join(message.split()))
    return found[0] if found else message


def _row(name: str, points: float, most: int, text: str, more_style: str = "") -> str:
    bar = f'<div style="{_STYLE["bar"]}; visibility: hidden" aria-hidden="true"></div>'
    if most:
        label = f"{points:g} of {most} points"
        done = f'<div style="{_STYLE["done"]}; width: {100 * points / most:.0f}%"></div>'
        bar = f'<div role="img" aria-label="{label}" style="{_STYLE["bar"]}">{done}</div>'
    out_of = f"{points:g} of {most}" if most else ""
    return (
        f'<div style="{_STYLE["row"]}{more_style}"><div style="{_STYLE["name"]}">{html.escape(name)}</div>{bar}'
        f'<div style="{_STYLE["points"]}">{out_of}</div><div style="{_STYLE["next"]}">{text}</div></div>'
    )


def _next_html(chapter: Chapter) -> str:
    if chapter.max_points and chapter.is_done:
        return "✔ done"
    return _prose(chapter.next)


def _link(path: Path) -> str:
    """A link that JupyterLab opens: as a path from the notebook that shows it."""
    try:
        target = Path(os.path.relpath(path)).as_posix()
    except ValueError:  # on another drive
        return f"<code>{html.escape(str(path))}</code>"
    return f'<a href="{quote(target)}">{html.escape(str(path))}</a>'


def _prose(text: str) -> str:
    """Escaped text in which `backquoted` words become code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text))


def main(folder: Path, as_json: bool = False) -> int:
    """Print the progress of a learner's folder for the command line, as text or JSON.

    Returns 0 when it could be computed, 2 when there is nothing to read.
    """
    try:
        lines = _as_they_come(chapters(folder), quiet=as_json)
    except work.NoWork as error:
        print(f"progress: {error}", file=sys.stderr)
        return 2
    found = Progress(folder, lines)
    print(json.dumps(found.as_json(), indent=2, ensure_ascii=False) if as_json else "\n".join(found.ending()))
    return 0


def _as_they_come(found: Iterable[Chapter], quiet: bool) -> tuple[Chapter, ...]:
    """All chapters, each printed when it is there."""
    kept = []
    for chapter in found:
        kept.append(chapter)
        if not quiet:
            print(chapter.line(), flush=True)
    return tuple(kept)

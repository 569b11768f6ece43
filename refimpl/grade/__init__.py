"""`python -m refimpl grade`: marks a class, many submissions at once, and enters the marks into nbgrader's gradebook.

Owns the order of the work: find submissions, mark those that are not marked yet, keep each mark as soon as it is known,
enter it, and tell all of them at the end. A run that was broken off goes on where it was. No submission costs another
one anything: each runs in a process of its own, behind walls (`walls`), within limits (`limits`).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from refimpl.checks.step import counted
from refimpl.grade.apart import Found, mark_apart
from refimpl.grade.limits import MIB, Limits
from refimpl.grade.marks import CannotEnter, Marks, Store, fingerprint, marks_of, table, write_csv
from refimpl.grade.submissions import NothingToGrade, Submission, submissions
from refimpl.release import CannotRelease

MARKS = "marks"
EXERCISES = "exercises"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    most = Limits()
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="holds a folder a student")
    parser.add_argument("--course", type=Path, default=Path(), metavar="FOLDER", help="the checkout (default: here)")
    parser.add_argument("--workers", type=int, metavar="N", help="processes that mark (default: one a core)")
    parser.add_argument("--scheduler", metavar="ADDRESS", help="of a dask cluster, instead of workers here")
    parser.add_argument("--again", action="store_true", help="mark anew what has marks already")
    parser.add_argument("--no-gradebook", action="store_true", help="leave nbgrader out of it")
    seconds = f"a notebook may take (default: {most.seconds:g})"
    parser.add_argument("--seconds", type=float, default=most.seconds, metavar="N", help=seconds)
    cell = f"one of its cells may take (default: {most.cell_seconds:g})"
    parser.add_argument("--cell-seconds", type=float, default=most.cell_seconds, metavar="N", help=cell)
    memory = f"a notebook may take (default: {most.memory // MIB})"
    parser.add_argument("--memory", type=int, default=most.memory // MIB, metavar="MIB", help=memory)
    parser.add_argument("--json", action="store_true", help="the marks as JSON instead of a table")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Grade for the command line, and say on stderr why when nothing could be done.

    Returns:
        int: 0 when every submission was marked to its end, 1 when somebody has to look at one, 2 when nothing was done.
    """
    try:
        limits = Limits(seconds=args.seconds, cell_seconds=args.cell_seconds, memory=args.memory * MIB)
        workers = os.cpu_count() or 1 if args.workers is None else args.workers
        grading = Grading(args.course, limits, uses_gradebook=not args.no_gradebook)
        return grading.grade(args.folders, args.scheduler, workers, args.again, args.json)
    except (NothingToGrade, CannotRelease, CannotEnter, ValueError) as error:
        print(f"grade: {error}", file=sys.stderr)
    except ModuleNotFoundError as error:
        print(f"grade: {error}; `make grader` installs what grading needs", file=sys.stderr)
    return 2


class Grading:
    """One course, and the marks in its folder `marks/`.

    Args:
        root: of the course.
        limits: for each submission.
        uses_gradebook: whether marks are entered into nbgrader's, too.
        kept_in: the folder of the marks, where it is not the course's.

    Raises:
        NothingToGrade: when the course holds no exercise.
    """

    def __init__(self, root: Path, limits: Limits, uses_gradebook: bool = True, kept_in: Path | None = None) -> None:
        self.root, self.limits = root, limits
        self.assignments = [path.parent.name for path in sorted((root / EXERCISES).glob("*/*.ipynb"))]
        if not self.assignments:
            raise NothingToGrade(f"{root / EXERCISES} holds no exercise: name the checkout with --course")
        self.store = Store(kept_in or root / MARKS)
        self.troubles: list[str] = []
        self._course = None
        if uses_gradebook:
            from refimpl.grade.gradebook import Course

            self._course = Course(root)

    def grade(
        self, folders: Sequence[Path], scheduler: str | None, workers: int, again: bool = False, as_json: bool = False
    ) -> int:
        """Mark everything below the folders, and say what came out.

        Args:
            folders: in each of them a folder a student.
            scheduler: the address of a dask cluster, None for one here.
            workers: processes of the one here.
            again: mark anew what has marks already.
            as_json: print rows instead of a table.

        Returns:
            int: the exit code; see `run`.

        Raises:
            NothingToGrade: when there is nothing to mark, or nobody who could.
        """
        from tqdm import tqdm

        if workers < 1:
            raise NothingToGrade(f"{workers} workers cannot mark anything; at least 1 is needed")
        began = time.monotonic()
        found = submissions(folders, self.assignments, self.limits)
        placed = [each for each in found if each.assignment]
        self.troubles += [f"{each.path}: {each.problem}" for each in found if not each.assignment]
        done, todo = list[Submission](), list[Submission]()
        for each in placed:
            (done if not again and self.is_done(each) else todo).append(each)
        self._make_known(placed)
        print(f"limits: {self.limits.told()}", file=sys.stderr)
        bar = tqdm(total=len(placed), initial=len(done), unit=" submissions", disable=None)
        with bar:
            for each in done:
                self._enter(each, self.marks_of(each))
            for each in self._marked(todo, scheduler, workers, [*folders, self.root / "submitted"]):
                bar.set_postfix_str(each.name)
                bar.update()
        known = [marks for each in placed if (marks := self.store[each.student, each.assignment]) is not None]
        self._say(known, len(todo), len(done), time.monotonic() - began, as_json)
        return int(bool(self.troubles) or any(marks.problem for marks in known))

    def _marked(
        self, todo: Sequence[Submission], scheduler: str | None, workers: int, refused: Sequence[Path]
    ) -> Iterator[Submission]:
        """Mark these, and keep and enter the marks; yields each when that is done."""
        from refimpl.grade.cluster import NoCluster, cluster, found_by

        for each in todo:
            if each.problem:
                self._enter(each, self.keep(each, _not_run(each)))
                yield each
        runs = [each for each in todo if not each.problem]
        if not runs:
            return
        try:
            with cluster(scheduler, min(workers, len(runs))) as client:
                for each, found in found_by(client, runs, self.limits, refused):
                    if isinstance(found, BaseException):
                        self.troubles.append(f"{each.name}: not marked, {type(found).__name__}: {found}")
                    else:
                        self._enter(each, self.keep(each, found))
                    yield each
        except NoCluster as error:
            raise NothingToGrade(str(error)) from error

    def marks_of(self, submission: Submission) -> Marks:
        """Its marks: those that are kept, or else it is marked now, in a process of its own."""
        kept = self.store[submission.student, submission.assignment]
        if kept is not None and self.is_done(submission):
            return kept
        if submission.problem:
            return self.keep(submission, _not_run(submission))
        refused = [str(self.root / "submitted")]
        return self.keep(submission, mark_apart(submission.notebook, submission.file, self.limits, refused))

    def keep(self, submission: Submission, found: Found) -> Marks:
        """Write down what was found."""
        marks = marks_of(submission.student, submission.assignment, self._fingerprint(submission), found, self.limits)
        notes = (*marks.report.notes, *submission.notes)
        marks = dataclasses.replace(marks, report=dataclasses.replace(marks.report, notes=notes))
        self.store.keep(marks)
        return marks

    def _make_known(self, placed: Sequence[Submission]) -> None:
        if self._course is not None:
            self._course.make_known(sorted({each.assignment for each in placed}))

    def _enter(self, submission: Submission, marks: Marks) -> None:
        if self._course is None:
            return
        try:
            self._course.enter(submission, marks)
        except CannotEnter as error:
            self.troubles.append(str(error))

    def is_done(self, submission: Submission) -> bool:
        """Whether there are marks of this very notebook; what a limit cut off is tried again under another one."""
        marks = self.store[submission.student, submission.assignment]
        if marks is None or marks.fingerprint != self._fingerprint(submission):
            return False
        return not marks.problem or bool(submission.problem) or marks.limits == self.limits.told()

    def _fingerprint(self, submission: Submission) -> str:
        return fingerprint(submission.notebook or submission.problem.encode())

    def _say(self, known: Sequence[Marks], marked: int, before: int, seconds: float, as_json: bool) -> None:
        path = self.store.folder / "marks.csv"
        if known:
            write_csv(self.store, path)
        if as_json:
            print(json.dumps([row for marks in known for row in marks.rows()], indent=1, ensure_ascii=False))
        else:
            print("\n".join(table(known)))
        memory = max((marks.memory for marks in known), default=0) / MIB
        rate = f", {60 * marked / seconds:.1f} a minute" if marked else ""
        print(
            f"{counted(len(known), 'submission')}: {marked} marked now{rate}, {before} before; "
            f"the most memory of one: {memory:.0f} MiB; every step of all that is marked in {path}",
            file=sys.stderr,
        )
        for walls in sorted({marks.walls for marks in known if marks.walls}):
            print(f"in force: {walls}", file=sys.stderr)
        for trouble in self.troubles:
            print(f"look at: {trouble}", file=sys.stderr)


def _not_run(submission: Submission) -> Found:
    return Found(None, [], submission.problem, 0.0, 0, "")

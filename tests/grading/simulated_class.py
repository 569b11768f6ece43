"""A class of simulated learners over all chapters, and the mark that each of their steps must get.

Owns who hands in what: solved exercises, exercises with steps left open or answered wrongly, untouched ones, and every
planted case once. The same seed gives the same files. Marks are those that the checks give for subjects made in a
process of their own, which no notebook and no kernel has a part in.

    python tests/grading/simulated_class.py make FOLDER [--size 200] [--seed 0] [--port 1]
    python tests/grading/simulated_class.py compare FOLDER MARKS.csv

`make` writes FOLDER/STUDENT/NN_name/NN_name.ipynb, and what is expected to FOLDER.expected.json.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import json
import multiprocessing
import random
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from handed_in import ROOT, HandedIn, borrowed, chapter, chapters
from planted import Planted, Surroundings, cases

from refimpl.checks import CheckResult
from refimpl.checks.catalogue import chapter_steps, find
from refimpl.checks.engine import examine
from refimpl.proof import load, mutants, mutated, subject

FIRST_NAMES = (
    "Aïcha", "Ana María", "Anders", "Bea", "Björn", "Chloé", "Dmitri", "Eoin", "Ewa", "Fatima", "François", "Giulia",
    "Hélène", "Ibrahim", "Jun", "Kemal", "Léo", "Mei-Ling", "Nadia", "Noa", "Olga", "Priya", "Søren", "Zoë",
)  # fmt: skip
LAST_NAMES = (
    "Abe", "Ångström", "Conti", "D'Angelo", "de la Cruz", "Dvořák", "García López", "Haddad", "Ivanova", "Jones",
    "Kowalska", "Łukasik", "Müller", "Nguyễn", "O'Brien", "Øvergård", "Petrov", "Sánchez", "Şahin", "van der Berg",
    "Weiß", "Xu", "Yılmaz", "Zhang",
)  # fmt: skip
KINDS = {"solved": 8, "left open": 3, "answered wrongly": 8, "both": 2, "untouched": 1}  # how often, of 22
NO_PORT = 1  # where nobody listens
UNHURRIED = 30.0  # seconds for a check: what is expected does not depend on how busy this machine is


@dataclasses.dataclass(frozen=True, slots=True)
class Submission:
    """What one student hands in: an exercise with steps left open or answered wrongly, or a planted case."""

    student: str
    chapter: str
    left_open: tuple[str, ...] = ()  # steps
    wrong: tuple[tuple[str, Path], ...] = ()  # step, mutant
    case: Planted | None = None

    @property
    def kind(self) -> str:
        """In a word, for tables."""
        if self.case is not None:
            return f"planted {self.case.name}"
        wrong = [f"{path.parent.name}/{path.stem}" for _, path in self.wrong]
        return ", ".join([*wrong, *(f"{step} left open" for step in self.left_open)]) or "solved"

    def path(self, folder: Path) -> Path:
        """Of its notebook."""
        name = chapters()[self.chapter]
        return folder / self.student / name / f"{name}.ipynb"

    def content(self, around: Surroundings) -> bytes:
        """Of its notebook."""
        if self.case is not None:
            return self.case.content(around)
        notebook = HandedIn(self.chapter)
        for exercise_id in self.left_open:
            notebook.leave(find(exercise_id))
        for exercise_id, mutant in self.wrong:
            notebook.answer_wrongly(find(exercise_id), mutant)
        return notebook.as_bytes()

    def expected(self) -> Expected:
        """What it must be given; this takes seconds where something is wrong."""
        if self.case is not None:
            return Expected(self.student, self.chapter, self.kind, dict(self.case.marks), {}, dict(self.case.says))
        results = {step: self._result(step) for step in chapter_steps(self.chapter)}
        marks = {step: result.points for step, result in results.items()}
        outcomes = {step: str(result.outcome) for step, result in results.items()}
        return Expected(self.student, self.chapter, self.kind, marks, outcomes, {})

    def _result(self, exercise_id: str) -> CheckResult:
        """What the check says of this step's subject, made from the cells and the files of wrong answers alone."""
        exercise = chapter(self.chapter)
        open_cells = [grade_id for step in self.left_open for grade_id in exercise.answers_of(find(step))]
        names = exercise.with_stubs(open_cells)
        for wrong_id, mutant in self.wrong:
            wrong = find(wrong_id)
            names[wrong.subject] = mutated(wrong, names, load(mutant))
        return examine(find(exercise_id), subject(find(exercise_id), names), UNHURRIED)


@dataclasses.dataclass(frozen=True, slots=True)
class Expected:
    """What a submission must be given.

    Args:
        student, chapter: name of the folder, number of the chapter.
        kind: what was handed in, for whoever reads a difference.
        marks: step -> points; empty for a file that is no notebook.
        outcomes: step -> outcome, where that is certain.
        says: step, or "" for the notebook as a whole -> a regular expression for what must stand in what is said.
    """

    student: str
    chapter: str
    kind: str
    marks: Mapping[str, float]
    outcomes: Mapping[str, str]
    says: Mapping[str, str]

    @property
    def total(self) -> float:
        """Points of the whole notebook."""
        return round(sum(self.marks.values()), 2)


# Who hands in what.


def drawn(size: int = 200, seed: int = 0, planted: Sequence[Planted] | None = None) -> list[Submission]:
    """The class: every planted case once, the other students spread evenly over the chapters.

    Raises:
        ValueError: when there are more cases than students.
    """
    planted = cases() if planted is None else planted
    if size < len(planted):
        raise ValueError(f"a class of {size} is too small for {len(planted)} planted cases")
    rng = random.Random(seed)
    students = _students(size, rng, {case.student for case in planted})
    found = [Submission(case.student or next(students), case.chapter, case=case) for case in planted]
    numbers = list(chapters())
    for place in range(size - len(planted)):
        found.append(_drawn(next(students), numbers[place % len(numbers)], rng))
    return found


def _students(size: int, rng: random.Random, taken: set[str]) -> Iterator[str]:
    """Names, no two alike however a file system writes capitals."""
    names = [f"{last} {first}" for first in FIRST_NAMES for last in LAST_NAMES]
    if size > len(names):
        raise ValueError(f"a class of {size} is too large: there are {len(names)} names")
    return (name for name in rng.sample(names, len(names)) if name not in taken)


def _drawn(student: str, number: str, rng: random.Random) -> Submission:
    steps = list(chapter_steps(number))
    (kind,) = rng.choices(list(KINDS), list(KINDS.values()))
    edited = rng.sample(steps, rng.choice((1, 1, 2)) if kind != "both" else 2)
    if kind == "solved":
        return Submission(student, number)
    if kind == "untouched":
        return Submission(student, number, tuple(steps))
    if kind == "left open":
        return Submission(student, number, tuple(edited))
    wrong = tuple((step, rng.choice(mutants(ROOT, step))) for step in (edited[:1] if kind == "both" else edited))
    for step, mutant in wrong:
        if borrowed(number, mutant):  # it stands on another step: nothing else may be wrong
            return Submission(student, number, wrong=((step, mutant),))
    return Submission(student, number, tuple(edited[1:]) if kind == "both" else (), wrong)


# What is written, and expected.


def make_class(
    folder: Path, size: int = 200, seed: int = 0, *, port: int = NO_PORT, planted: Sequence[Planted] | None = None
) -> list[Expected]:
    """Write a class into `folder`, which must be new or empty, and return what each submission must be given."""
    if folder.exists() and any(folder.iterdir()):
        raise ValueError(f"{folder} is not empty: a class is written into a new folder")
    submissions = drawn(size, seed, planted)
    for submission in submissions:
        path = submission.path(folder)
        path.parent.mkdir(parents=True)
        path.write_bytes(submission.content(Surroundings(folder, port)))
    return expected_of(submissions)


def expected_of(submissions: Sequence[Submission]) -> list[Expected]:
    """What each must be given; where something is wrong, that takes seconds, and is computed in other processes.

    They import the script that calls this, which must be one that does nothing when it is imported.
    """
    known = [None if submission.wrong or submission.left_open else submission.expected() for submission in submissions]
    unknown = [submission for submission, found in zip(submissions, known, strict=True) if found is None]
    if unknown:
        with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
            computed = iter(list(pool.map(Submission.expected, unknown)))
    return [next(computed) if found is None else found for found in known]


# Comparison.


def compare(expected: Iterable[Expected], rows: Iterable[Mapping[str, str]]) -> list[str]:
    """A line for each difference between what is expected and the rows of a table of marks, a row a step.

    A row without a step speaks of the notebook as a whole.
    """
    found: dict[tuple[str, str], dict[str, list[Mapping[str, str]]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        found[row["student"], row["chapter"][:2]][row["step"]].append(row)
    differences = []
    for each in expected:
        of_steps = found.pop((each.student, each.chapter), None)
        where = f"{each.student}, chapter {each.chapter} ({each.kind})"
        lines = ["is not in the table"] if of_steps is None else _differences(each, of_steps)
        differences += [f"{where}: {line}" for line in lines]
    strangers = [f"{student}, chapter {number}: nobody handed this in" for student, number in found]
    return differences + strangers


def _differences(expected: Expected, rows: Mapping[str, Sequence[Mapping[str, str]]]) -> Iterator[str]:
    for step, points in expected.marks.items():
        of_step = rows.get(step, ())
        if len(of_step) != 1:
            yield f"{step} has {len(of_step)} rows and not one"
            continue
        row = of_step[0]
        if abs(float(row["points"]) - points) > 0.005 or float(row["max_points"]) != find(step).points:
            wanted = f"{points:g} of {find(step).points}"
            yield f"{step} is {row['points']} of {row['max_points']} points and not {wanted}: {row['says']}"
        if row["outcome"] != expected.outcomes.get(step, row["outcome"]):
            yield f"{step} is {row['outcome']!r} and not {expected.outcomes[step]!r}: {row['says']}"
    for step, of_step in rows.items():
        if step not in expected.marks and any(float(row["points"] or 0) for row in of_step):
            yield f"{step or 'the notebook'} has points, and nothing of this name was handed in"
    for step, pattern in expected.says.items():
        said = " ".join(row["says"] for row in rows.get(step, ()))
        if re.search(pattern, said, re.DOTALL) is None:
            yield f"{step or 'the notebook'} does not say {pattern!r}, but {said!r}"


# The command line.


def main(arguments: Sequence[str] | None = None) -> int:
    """Make a class, or compare its marks: 0 when they are as expected, otherwise 1."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    make = commands.add_parser("make", help="write a class, and what is expected beside it")
    make.add_argument("folder", type=Path)
    make.add_argument("--size", type=int, default=200)
    make.add_argument("--seed", type=int, default=0)
    make.add_argument("--port", type=int, default=NO_PORT, help="of the loopback address, where somebody listens")
    comparison = commands.add_parser("compare", help="print every difference")
    comparison.add_argument("folder", type=Path)
    comparison.add_argument("marks", type=Path)
    args = parser.parse_args(arguments)
    beside = args.folder.with_name(f"{args.folder.name}.expected.json")
    if args.command == "make":
        expected = make_class(args.folder, args.size, args.seed, port=args.port)
        beside.write_text(json.dumps([dataclasses.asdict(each) for each in expected], indent=1, ensure_ascii=False))
        points = sum(each.total for each in expected)
        print(f"{len(expected)} submissions in {args.folder}, {points:g} points; what is expected is in {beside}")
        return 0
    expected = [Expected(**each) for each in json.loads(beside.read_text("utf-8"))]
    with args.marks.open(encoding="utf-8", newline="") as file:
        differences = compare(expected, csv.DictReader(file))
    print("\n".join([*differences, f"{len(differences)} differences in {len(expected)} submissions"]))
    return int(bool(differences))


if __name__ == "__main__":
    sys.exit(main())

"""The proof of the checks: what is right passes, what is not yet written earns nothing, what is wrong is named.

Owns what a checkout shows of its own exercise steps. The answer in `solutions/` passes with full points; the stub in
`exercises/` is "not attempted"; every wrong solution in `tests/mutants/` is rejected and its thought named; a correct
design of another shape in `tests/second_designs/` passes. Each subject is made anew for each check, from cells that
run in a module of their own, so nothing that one check leaves behind can help the next. Everywhere `root` is the folder
of the checkout, and `number` the two digits of a chapter.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from refimpl.checks import CheckResult, steps
from refimpl.checks.engine import examine
from refimpl.checks.step import Step
from refimpl.exercise import Cell, CellRaised, Namespace, Runner, answers_of, read

SOLUTIONS, EXERCISES = Path("solutions"), Path("exercises")
MUTANTS, SECOND_DESIGNS = Path("tests/mutants"), Path("tests/second_designs")

FEWEST_MISCONCEPTIONS = 3  # of a step
MOST_OPERATIONS = 6  # in the history that shows a misconception
OTHER_SHAPE = "__"  # never-comes-back__looks-before-counting.py shows never-comes-back another way

# Chapter 00 has no exercise notebook: its one step stands in the lesson, where a learner changes it in place.
_TOY = "def wasted_slots(reserved, used):\n    {}\n"
_TOY_ANSWER, _TOY_STUB = _TOY.format("return reserved - used"), _TOY.format("raise NotImplementedError()")


class CannotProve(Exception):
    """Nothing was tried; the text says what is missing and where to run this."""


class NotProven(Exception):
    """There is nothing to check: a notebook or a file lacks what is asked for, or fails; the text says which."""


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """What a check said of the subject `name`. `fault` is empty when it said what it must."""

    name: str
    outcome: str
    misconception: str | None
    points: float
    said: str  # in full, as a terminal shows it
    fault: str


@dataclasses.dataclass(frozen=True, slots=True)
class StepProof:
    """What is shown for one step: verdicts on the answer (`reference`) and on whatever else is tried.

    `faults` says, a line each, what is not as it must be.
    """

    exercise_id: str
    points: int
    reference: Verdict
    stubs: tuple[Verdict, ...]
    mutants: tuple[Verdict, ...]
    second_designs: tuple[Verdict, ...]
    faults: tuple[str, ...]


# Subjects: what a learner would pass to `check`.


class Chapter:
    """The exercise notebook of one chapter, solved and as released."""

    def __init__(self, root: Path, number: str) -> None:
        self.root, self.number = root, number
        self._runner = Runner(f"exercise_{number}", f"<exercise {number}>")

    @cached_property
    def solved(self) -> list[Cell]:
        """The code cells with their answers."""
        return [_toy(_TOY_ANSWER)] if self.number == "00" else read(_notebook(self.root / SOLUTIONS, self.number))

    @cached_property
    def released(self) -> list[Cell]:
        """The code cells as learners get them."""
        return [_toy(_TOY_STUB)] if self.number == "00" else read(_notebook(self.root / EXERCISES, self.number))

    def solution(self) -> Namespace:
        """The names that the solved notebook defines, all of them new."""
        return self._run(self.solved)

    def stub(self) -> Namespace:
        """The names that the notebook defines as learners get it."""
        return self._run(self.released)

    def with_stubs(self, grade_ids: Iterable[str]) -> Namespace:
        """The solved notebook with these answer cells as learners get them."""
        stubs = {cell.grade_id: cell for cell in self.released if cell.grade_id in set(grade_ids)}
        return self._run([stubs.get(cell.grade_id, cell) if cell.is_answer else cell for cell in self.solved])

    def answers_of(self, step: Step) -> list[str]:
        """The grade ids of this step's answer cells. NotProven where the notebook has no check for it."""
        found = self.solved if self.number == "00" else answers_of(step.exercise_id, self.solved)
        if found is None:
            raise NotProven(f"no check cell of {SOLUTIONS}/{self.number}_* has the grade id {step.exercise_id}")
        return [cell.grade_id for cell in found]

    def _run(self, cells: list[Cell]) -> Namespace:
        try:
            return self._runner.run(cells)
        except CellRaised as error:
            raise NotProven(str(error)) from error.__cause__


def _toy(source: str) -> Cell:
    return Cell("00-first-check-answer", source, is_answer=True, is_check=False)


def _notebook(folder: Path, number: str) -> Path:
    found = sorted(folder.glob(f"{number}_*/{number}_*.ipynb"))
    if len(found) != 1:
        mend = "" if folder.name == SOLUTIONS.name else "; generate it with: python -m refimpl release"
        raise NotProven(f"{folder.name}/{number}_*/{number}_*.ipynb is {len(found)} notebooks and not one{mend}")
    return found[0]


def subject(step: Step, names: Namespace) -> Any:
    """The class or function that this step's check is given, out of the names that a notebook defines.

    Raises:
        NotProven: when it is not among them.
    """
    if step.subject not in names:
        raise NotProven(f"it defines no {step.subject}")
    return names[step.subject]


def mutated(step: Step, solved: Namespace, wrong: Namespace) -> Any:
    """The solved subject with wrong functions in place of what the step asks for, or a wrong subject as a whole.

    Raises:
        NotProven: when `wrong` defines neither.
    """
    if step.subject in wrong:
        return wrong[step.subject]
    names = [name for name in step.asks_for if name in wrong]
    if not names:
        raise NotProven(f"it defines none of {', '.join(dict.fromkeys((step.subject, *step.asks_for)))}")
    whole = subject(step, solved)
    for name in names:
        setattr(whole, name, wrong[name])
    return whole


def load(path: Path) -> Namespace:
    """The names that a file defines, all of them new; what it takes from refimpl is not its own.

    Raises:
        NotProven: for a file that is not Python, or raises.
    """
    name = re.sub(r"\W", "_", f"{path.parent.name}_{path.stem}")
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise NotProven(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise NotProven(f"it raised {type(error).__name__}: {error}") from error
    own = vars(module)
    return {name: own[name] for name in own if not str(getattr(own[name], "__module__", "")).startswith("refimpl.")}


def mutants(root: Path, exercise_id: str = "*") -> list[Path]:
    """The files of the wrong solutions of one step, or of all."""
    return sorted((root / MUTANTS).glob(f"{exercise_id}/*.py"))


def misconception_of(path: Path) -> str:
    """What a mutant must be named.

    >>> misconception_of(Path("tests/mutants/03-free/never-comes-back__looks-before-counting.py"))
    'never-comes-back'
    """
    return path.stem.partition(OTHER_SHAPE)[0]


def second_designs(root: Path, number: str = "[0-9][0-9]") -> list[Path]:
    """The files of the other correct designs of one chapter, or of all."""
    return sorted((root / SECOND_DESIGNS).glob(f"{number}_*.py"))


# Verdicts: what the check says of each, and what it must say.


def reference_verdict(step: Step, chapter: Chapter) -> Verdict:
    """The answer that `solutions/` holds for this chapter must pass with full points."""
    return _verdict("reference", lambda: examine(step, subject(step, chapter.solution())), _passes)


def stub_verdicts(step: Step, chapter: Chapter) -> tuple[Verdict, ...]:
    """Nothing has been written, in the whole notebook or for this step alone: "not attempted", and no points."""

    def alone() -> CheckResult:
        return examine(step, subject(step, chapter.with_stubs(chapter.answers_of(step))))

    return (
        _verdict("stub", lambda: examine(step, subject(step, chapter.stub())), _not_attempted),
        _verdict("stub among answers", alone, _not_attempted),
    )


def mutant_verdict(step: Step, chapter: Chapter, path: Path) -> Verdict:
    """The wrong solution at `path`, put into the chapter, must be rejected, and named in a short history."""

    def said() -> CheckResult:
        return examine(step, mutated(step, chapter.solution(), load(path)))

    def fault(result: CheckResult) -> str:
        if result.misconception != misconception_of(path) or result.outcome != "misconception":
            return f"is {result.outcome} ({result.misconception or 'not named'}): {result.message}"
        count = len(operations(result))
        return f"takes {count} operations to show, and {MOST_OPERATIONS} are the most" * (count > MOST_OPERATIONS)

    return _verdict(path.stem, said, fault)


def design_verdict(step: Step, path: Path) -> Verdict:
    """A correct design of another shape, the file at `path`, must pass with full points."""
    shape = path.stem.partition("_")[2]
    return _verdict(shape, lambda: examine(step, subject(step, load(path))), _passes)


def operations(result: CheckResult) -> list[str]:
    """The lines of a result's history apart from those that only make objects, such as `pool = BlockPool(3)`."""
    return [line for line in result.trace if not re.match(r"\w+ = [A-Z]\w*\(", line)]


def _passes(result: CheckResult) -> str:
    passed = result.outcome == "passed" and float(repr(result)) == result.max_points
    return "" if passed else f"is {result.outcome}, {result!r} of {result.max_points} points: {result.message}"


def _not_attempted(result: CheckResult) -> str:
    untouched = result.outcome == "not attempted" and float(repr(result)) == 0
    return "" if untouched else f"is {result.outcome}, {result!r} points: {result.message}"


def _verdict(name: str, check: Callable[[], CheckResult], fault: Callable[[CheckResult], str]) -> Verdict:
    """What the check says, judged by `fault`; where there is nothing to check, that is the fault."""
    try:
        result = check()
    except NotProven as error:
        return Verdict(name, "–", None, 0.0, "", str(error))
    except Exception as error:  # noqa: BLE001  (whatever it is, the check itself is at fault)
        return Verdict(name, "–", None, 0.0, "", f"breaks the check itself, {type(error).__name__}: {error}")
    return Verdict(name, result.outcome, result.misconception, result.points, str(result), fault(result))


# The proof of a step, of chapters, and its table.


def prove(root: Path, numbers: Iterable[str] = ()) -> Iterator[StepProof]:
    """The proof of each step of the chapters `numbers`, or of all, as soon as it is there.

    Raises:
        CannotProve: when `root` lacks a folder that this needs, or a chapter has no steps.
    """
    missing = [folder.as_posix() for folder in (SOLUTIONS, MUTANTS, SECOND_DESIGNS) if not (root / folder).is_dir()]
    if missing:
        raise CannotProve(f"{root} lacks {', '.join(missing)}: run this in a checkout of the course")
    chapters = {number: Chapter(root, number) for number in {_number(step) for step in steps().values()}}
    wanted = {number.zfill(2) for number in numbers}
    if not wanted:
        wanted = set(chapters)
        strays = sorted({path.parent.name for path in mutants(root)} - steps().keys())
        if strays:
            raise CannotProve(f"{MUTANTS} holds {', '.join(strays)}, and there are no such steps")
    if not wanted <= set(chapters):
        known = ", ".join(sorted(chapters))
        raise CannotProve(f"chapter {', '.join(sorted(wanted - set(chapters)))} has no steps; those that have: {known}")
    return (prove_step(root, step, chapters[_number(step)]) for step in steps().values() if _number(step) in wanted)


def prove_step(root: Path, step: Step, chapter: Chapter) -> StepProof:
    """All that is shown for one step of a chapter."""
    reference = reference_verdict(step, chapter)
    stubs = stub_verdicts(step, chapter)
    wrong = tuple(mutant_verdict(step, chapter, path) for path in mutants(root, step.exercise_id))
    designs = tuple(
        design_verdict(step, path) for path in second_designs(root, chapter.number) if _defines(path, step.subject)
    )
    faults = [
        f"{kind}{verdict.name} {verdict.fault}"
        for kind, verdicts in (("", (reference, *stubs)), ("mutant ", wrong), ("second design ", designs))
        for verdict in verdicts
        if verdict.fault
    ]
    return StepProof(
        step.exercise_id, step.points, reference, stubs, wrong, designs, (*faults, *_missing(step, wrong, designs))
    )


def _missing(step: Step, wrong: tuple[Verdict, ...], designs: tuple[Verdict, ...]) -> Iterator[str]:
    """What a step has too little of."""
    shown = {misconception_of(Path(verdict.name)) for verdict in wrong}
    for name in sorted(step.misconceptions.keys() - shown):
        yield f"no mutant shows the misconception {name}"
    if len(step.misconceptions) < FEWEST_MISCONCEPTIONS:
        yield f"{len(step.misconceptions)} misconceptions are named, and the least is {FEWEST_MISCONCEPTIONS}"
    if not designs:
        yield f"no file in {SECOND_DESIGNS} defines another {step.subject}"


def _number(step: Step) -> str:
    return step.exercise_id.partition("-")[0]


def _defines(path: Path, name: str) -> bool:
    """Whether the file defines this; a file that cannot be read is for `design_verdict` to tell."""
    try:
        return name in load(path)
    except NotProven:
        return True


_COLUMNS = {  # title -> how its texts stand in it
    "step": "<24",
    "points": ">6",
    "reference": "<13",
    "stub": "<13",
    "mutants named": "<13",
    "second designs": "<1",
}


def row(proof: StepProof) -> tuple[str, ...]:
    """One line of the table."""
    stub = next((verdict for verdict in proof.stubs if verdict.fault), proof.stubs[0])
    named = sum(not verdict.fault for verdict in proof.mutants)
    designs = [f"{verdict.name}{' FAILS' * bool(verdict.fault)}" for verdict in proof.second_designs]
    return (
        proof.exercise_id,
        str(proof.points),
        proof.reference.outcome,
        stub.outcome,
        f"{named} of {len(proof.mutants)}",
        ", ".join(designs) or "none",
    )


def main(numbers: Iterable[str] = (), as_json: bool = False, root: Path | None = None) -> int:
    """Print the proof for the command line, of the chapters `numbers` or of all, as a table or as JSON.

    Returns 0 when all is proven, 1 when not, 2 when nothing could be tried.
    """
    root = Path.cwd() if root is None else root
    try:
        proofs = prove(root, numbers)
    except CannotProve as error:
        print(f"checks --proof: {error}", file=sys.stderr)
        return 2
    if as_json:
        found = list(proofs)
        print(json.dumps([dataclasses.asdict(proof) for proof in found], indent=2, ensure_ascii=False))
    else:
        found = _printed(proofs)
    return int(any(proof.faults for proof in found))


def _printed(proofs: Iterator[StepProof]) -> list[StepProof]:
    """The table, a line as soon as its step is proven; then the totals, and what is not proven."""
    _print_row(tuple(_COLUMNS))
    found = []
    for proof in proofs:
        _print_row(row(proof))
        found.append(proof)
    wrong = [verdict for proof in found for verdict in proof.mutants]
    named = sum(not verdict.fault for verdict in wrong)
    points = sum(proof.points for proof in found)
    not_proven = sum(bool(proof.faults) for proof in found)
    _print_row((f"{len(found)} steps", str(points), "", "", f"{named} of {len(wrong)}", ""))
    for proof in found:
        for fault in proof.faults:
            print(f"{proof.exercise_id}: {fault}")
    print(f"not proven: {not_proven} of {len(found)} steps" if not_proven else "all proven")
    return found


def _print_row(texts: tuple[str, ...]) -> None:
    cells = (f"{text:{form}}" for text, form in zip(texts, _COLUMNS.values(), strict=True))
    print("  ".join(cells).rstrip(), flush=True)

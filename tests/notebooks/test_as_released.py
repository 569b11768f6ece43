"""What a learner gets is unsolved, and what CI calls solved is solved: each check says so itself (F17).

Outcomes are read from what the check cells show, as a learner reads them, never from the code of the cells.
"""

import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

import pytest
import rules
from builders import code, graded, markdown, notebook, printed, shown, solution_notebook
from nbformat import NotebookNode

from refimpl import notebooks, release

ROOT = Path(__file__).parents[2]
EXERCISES = sorted((ROOT / "exercises").glob("[0-9]*/[0-9]*.ipynb"))
SOLUTIONS = sorted((ROOT / "solutions").glob("[0-9]*/[0-9]*.ipynb"))
SECONDS = 20  # for a solved exercise, from a cold kernel to its last cell, on two cores


class Shown(NamedTuple):
    """What one check cell shows: the printed outcome and the points that nbgrader would read."""

    outcome: str
    points: float


def outcomes(nb: NotebookNode) -> dict[str, Shown]:
    """Return what each check cell of an executed notebook shows, by exercise id.

    Fails when the notebook has no check cell, or when one of them shows no outcome of its own exercise.
    """
    found = {}
    for _, cell in rules.check_cells(nb):
        exercise_id = cell.metadata.nbgrader.grade_id
        stdout = "".join(output.text for output in cell.outputs if output.output_type == "stream")
        line = re.search(rf"^{re.escape(exercise_id)}: ([a-z ]+?) —", stdout, re.MULTILINE)
        points = [output.data["text/plain"] for output in cell.outputs if output.output_type == "execute_result"]
        assert line, f"the check of {exercise_id} printed no outcome, only {stdout!r}"
        assert points, f"the check of {exercise_id} gave no points"
        found[exercise_id] = Shown(line[1], float(points[-1]))
    assert found, "there is no check cell, so nothing was checked"
    return found


@pytest.mark.parametrize("path", EXERCISES, ids=lambda path: path.stem)
def test_each_check_of_an_exercise_as_released_says_not_attempted(path: Path, tmp_path: Path) -> None:
    """F17. The notebook runs to its end in a folder of its own: the stub stops nothing but its own check."""
    copy = shutil.copytree(path.parent, tmp_path / "a folder of the learner") / path.name
    found = outcomes(notebooks.run(notebooks.read(copy), copy.parent, path.name))
    assert {shown.outcome for shown in found.values()} == {"not attempted"}
    assert {shown.points for shown in found.values()} == {0.0}


@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.stem)
def test_each_check_of_a_solution_says_passed_with_full_points(path: Path) -> None:
    """F17. The stored outputs are those of a clean run: nbval compares them."""
    nb = notebooks.read(path)
    full = {cell.metadata.nbgrader.grade_id: cell.metadata.nbgrader.points for _, cell in rules.check_cells(nb)}
    assert outcomes(nb) == {exercise_id: Shown("passed", points) for exercise_id, points in full.items()}


def solved_alone(exercise: Path, solution: Path, folder: Path, answered: set[str] | None = None) -> NotebookNode:
    """Run an exercise in a folder that holds nothing else, with the answers of `solution`: all, or those of some ids.

    What a learner's notebook is after one evening: the released cells, answers in them, no other chapter touched.
    """
    copy = Path(shutil.copy(exercise, folder))
    nb = notebooks.read(copy)
    solved = {cell.id: cell for cell in filter(rules.is_answer, notebooks.read(solution).cells)}
    assert solved.keys() == {cell.id for cell in filter(rules.is_answer, nb.cells)}
    for cell in filter(rules.is_answer, nb.cells):
        if answered is None or cell.id in answered:
            cell.source = solved[cell.id].source
    return notebooks.run(nb, folder, copy.name)


@pytest.mark.alone
@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.stem)
def test_an_exercise_is_solved_with_its_own_chapter_alone_in_twenty_seconds(path: Path, tmp_path: Path) -> None:
    assert not tmp_path.is_relative_to(ROOT)
    exercise = ROOT / "exercises" / path.parent.name / path.name
    start = time.monotonic()
    nb = solved_alone(exercise, path, tmp_path)
    seconds = time.monotonic() - start
    full = {cell.metadata.nbgrader.grade_id: cell.metadata.nbgrader.points for _, cell in rules.check_cells(nb)}
    assert outcomes(nb) == {exercise_id: Shown("passed", points) for exercise_id, points in full.items()}
    assert seconds < SECONDS, f"{path.name} took {seconds:.1f} s from the start of its kernel to its last cell"


def test_an_answer_that_is_left_out_is_not_taken_for_solved(tmp_path: Path) -> None:
    chapter_3 = "03_uncached_allocator/03_uncached_allocator.ipynb"
    nb = solved_alone(ROOT / "exercises" / chapter_3, ROOT / "solutions" / chapter_3, tmp_path, {"03-allocate-answer"})
    assert {exercise_id: shown.outcome for exercise_id, shown in outcomes(nb).items()} == {
        "03-allocate": "passed",
        "03-free": "not attempted",
        "03-share": "not attempted",
    }


def test_every_solution_has_its_exercise() -> None:
    assert EXERCISES
    assert [path.name for path in EXERCISES] == [path.name for path in SOLUTIONS]


def test_the_exercises_are_what_the_solutions_give() -> None:
    """L1 and L5: one source, and nobody edits what is generated. To mend: python -m refimpl release."""
    assert release.compare(ROOT) == []


def test_git_carries_of_the_exercises_only_what_release_wrote() -> None:
    """L1. `release --check` passes over checkpoints because git ignores them; `git add --force` does not."""
    if not (ROOT / ".git").exists() or not shutil.which("git"):
        pytest.skip("no git or no checkout of it here, so there is no list of what git carries")
    command = ["git", "-c", "safe.directory=*", "ls-files", "-z", "exercises"]  # whoever owns the checkout
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    parts = {part for name in listed.stdout.split("\0") for part in Path(name).parts}
    assert "exercises" in parts
    assert not parts & release.BY_PROGRAMS


def test_a_notebook_without_checks_is_not_taken_for_solved() -> None:
    with pytest.raises(AssertionError, match="nothing was checked"):
        outcomes(notebook(markdown("# Nothing to check", "title"), code("print('passed')", "cell")))


@pytest.mark.parametrize(
    ("output", "missing"),
    [
        ((), "printed no outcome"),
        ((printed("03-allocate: passed — of another step"),), "printed no outcome"),
        ((printed("03-free: passed — but no points"),), "gave no points"),
        ((printed("03-free: passed — shown, not returned"), shown(text_plain="2.0")), "gave no points"),
    ],
)
def test_a_check_that_says_nothing_is_not_taken_for_solved(output: tuple[NotebookNode, ...], missing: str) -> None:
    cell = graded(code('check("03-free", free)', "03-free-check", *output), "03-free", 2.0)
    with pytest.raises(AssertionError, match=missing):
        outcomes(notebook(cell))


def test_the_outcomes_are_those_that_the_cells_show() -> None:
    nb = solution_notebook()
    check = nb.cells[4]
    check.outputs = [printed("noise\n03-free: not attempted — write it\n"), check.outputs[0]]
    check.outputs[1] = notebooks.nbformat.v4.new_output("execute_result", data={"text/plain": "0.0"})
    assert outcomes(nb) == {"03-free": Shown("not attempted", 0.0)}

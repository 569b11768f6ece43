"""A learner's first hour in a real JupyterLab: a Chromium opens the notebooks, runs them, types and is told."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from driver import OpenNotebook, photograph

from refimpl import notebooks

ROOT = Path(__file__).parents[2]

EXERCISE = "exercises/03_uncached_allocator/03_uncached_allocator.ipynb"
SOLUTION = "solutions/03_uncached_allocator/03_uncached_allocator.ipynb"
START = "notebooks/00_start_here.ipynb"
STUB = "    # YOUR CODE HERE\n    raise NotImplementedError()"
FORGETS_THE_OTHER_OWNERS = """    if block.ref_count == 0:
        raise ValueError("this block has no owner")
    block.ref_count -= 1
    self.free_blocks.append(block)"""


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy, for a browser saves what it runs; the lesson has no outputs, so that only a run shows any."""
    folder = tmp_path_factory.mktemp("course")
    for name in ("notebooks", "exercises"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns(".*"))
    nb = notebooks.read(folder / START)
    for cell in nb.cells:
        if cell.cell_type == "code":
            cell.update(outputs=[], execution_count=None)
    notebooks.write(nb, folder / START)
    return folder


def test_the_first_check_a_learner_meets_turns_green(page: Any, course: Path) -> None:
    start = OpenNotebook(page, course, START)
    start.run_all()
    panel = start.check("00-first-check", "passed")
    assert "Passed" in panel.inner_text()
    photograph(page, panel, "00-passed")


def test_the_exercise_says_not_attempted_then_what_is_wrong_then_passed(page: Any, course: Path) -> None:
    exercise = OpenNotebook(page, course, EXERCISE)
    exercise.run_all()
    for exercise_id in ("03-allocate", "03-free", "03-share"):
        exercise.check(exercise_id, "not attempted")

    exercise.type_instead_of(STUB, answer("03-allocate-answer"), "03-allocate-answer")
    exercise.run("03-allocate-check")
    exercise.check("03-allocate", "passed")

    exercise.type_instead_of(STUB, FORGETS_THE_OTHER_OWNERS, "03-free-answer")
    exercise.run("03-free-check")
    wrong = exercise.check("03-free", "misconception")
    assert "last owner" in wrong.inner_text()
    photograph(page, wrong, "03-misconception")

    exercise.type_instead_of(FORGETS_THE_OTHER_OWNERS, answer("03-free-answer"), "03-free-answer")
    exercise.run("03-free-check")
    right = exercise.check("03-free", "passed")
    assert "4 of 4 points" in right.inner_text()
    photograph(page, right, "03-passed")


def test_nobody_can_type_into_a_check(page: Any, course: Path) -> None:
    exercise = OpenNotebook(page, course, EXERCISE)
    before = exercise.source("03-free-check")
    exercise.cell("03-free-check").locator(".cm-content").click()
    page.keyboard.insert_text("print('mine') #")
    assert exercise.source("03-free-check") == before


def answer(cell_id: str) -> str:
    """Return the solution region of a cell, as a learner who got it right would have typed it."""
    cell = next(cell for cell in notebooks.read(ROOT / SOLUTION).cells if cell.id == cell_id)
    region = re.search(r"### BEGIN SOLUTION\n(.*)\n\s*### END SOLUTION", cell.source, re.DOTALL)
    assert region
    return region[1]

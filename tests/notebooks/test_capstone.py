"""The capstone: chapter 11's lesson, run beside a learner's notebooks, serves the model through the learner's parts.

The learner's answers are the solutions. That every part of them is what runs, `serving/test_parts.py` shows part by
part; here it is the lesson as a whole, as somebody at the end of the course runs it.
"""

from __future__ import annotations

import ast
import re
import resource
import shutil
from pathlib import Path

import pytest
from nbformat import NotebookNode

from refimpl import notebooks
from refimpl.parts.collect import KINDS
from refimpl.serving.fetch_model import model_path

ROOT = Path(__file__).parents[2]
LESSON = ROOT / "notebooks" / "11_serve_a_real_model.ipynb"
SECONDS = 60  # for a lesson that computes


@pytest.fixture
def course(tmp_path: Path) -> Path:
    """A folder of the course in which everything has been solved."""
    (tmp_path / "notebooks").mkdir()
    shutil.copytree(ROOT / "solutions", tmp_path / "my_work", ignore=shutil.ignore_patterns(".*", "README.md"))
    return tmp_path


def run_lesson(course: Path, lesson: Path = LESSON) -> NotebookNode:
    path = Path(shutil.copy(lesson, course / "notebooks"))
    return notebooks.run(notebooks.read(path), path.parent, path.name, timeout=180)


def printed(nb: NotebookNode, cell_id: str) -> str:
    (cell,) = (cell for cell in nb.cells if cell.id == cell_id)
    return "".join(output.text for output in cell.outputs if output.output_type == "stream")


def whose(nb: NotebookNode) -> dict[str, str]:
    """Part -> whose it is, by the table that the lesson prints."""
    return dict(re.findall(r"^(.{22})(\w\S+)", printed(nb, "collect"), re.MULTILINE)[1:])


def answer(course: Path, grade_id: str, source: str) -> None:
    """The learner writes something else into an answer cell, or into any cell by its id."""
    for path in (course / "my_work").glob("*/*.ipynb"):
        nb = notebooks.read(path)
        for cell in nb.cells:
            if cell.id == grade_id:
                cell.source = source
                notebooks.write(nb, path)
                return
    raise AssertionError(f"there is no cell {grade_id}")


needs_model = pytest.mark.skipif(
    not model_path().is_file(), reason=f"{model_path()} is not there: `python -m refimpl fetch-model`"
)


def all_the_same(nb: NotebookNode) -> bool:
    """Whether the lesson found the same tokens with these parts, however it had them work."""
    compared = ast.literal_eval(printed(nb, "yours"))
    return {"recompute", "swap", "prefix caching"} <= compared.keys() and all(compared.values())


@needs_model
def test_the_real_model_is_served_by_the_learners_parts_with_the_same_tokens(course: Path) -> None:
    """Preemption is forced in both modes: the lesson's own cells assert it."""
    nb = run_lesson(course)
    assert printed(nb, "load").startswith("serving smollm2-135m")
    assert whose(nb) == {f"{kind.part:<22}": "yours" for kind in KINDS}
    assert all_the_same(nb)
    assert printed(nb, "yours-llm").startswith("'The capital of France is Paris. Paris is a city renowned for its hist")
    for mode in ("recompute", "swap"):
        assert re.search(rf"^{mode}: \d+ steps, [1-9]\d* preempted", printed(nb, "small"), re.MULTILINE)


@needs_model
def test_an_outsiders_manager_over_arrays_runs_the_whole_capstone(course: Path) -> None:
    source = (ROOT / "tests" / "second_designs" / "06_array.py").read_text(encoding="utf-8")
    answer(course, "07-given-class", source)
    for name in ("can-swap-out", "move", "swap-parts", "swap-out", "can-swap-in", "swap-in"):
        answer(course, f"07-{name}-answer", "pass  # the class above has it")
    nb = run_lesson(course)
    assert set(whose(nb).values()) == {"yours"}
    assert len(re.findall(r"^manager: .*07_swap\.ipynb", printed(nb, "collect"), re.MULTILINE)) == 4
    assert all_the_same(nb)
    assert printed(nb, "yours-llm").startswith("'The capital of France is Paris.")


def test_a_part_that_fails_ends_the_lesson_and_is_named(course: Path) -> None:
    """It passes its check, whose pools are small, and fails where serving has more blocks."""
    source = (
        "@add_to_class(UncachedBlockAllocator)\n"
        "def allocate(self, block_hash=None, num_hashed_tokens=0):\n"
        "    if self.num_blocks > 30:\n"
        "        raise RuntimeError('planted')\n"
        "    if not self.free_blocks:\n"
        "        raise ValueError('out of memory')\n"
        "    block = self.free_blocks.pop()\n"
        "    block.ref_count = 1\n"
        "    return block"
    )
    answer(course, "03-allocate-answer", source)
    for chapter in (course / "my_work").iterdir():
        if not chapter.name.startswith("03_"):
            shutil.rmtree(chapter)
    with pytest.raises(notebooks.NotebookError, match=r"raised PartError: your uncached_allocator: `allocate` ended"):
        run_lesson(course)


def test_without_the_file_and_without_work_a_random_model_is_served_and_the_lesson_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "empty"))
    (tmp_path / "notebooks").mkdir()
    nb = run_lesson(tmp_path)
    assert printed(nb, "load").startswith("serving random-tiny")
    assert set(whose(nb).values()) == {"refimpl's"}
    assert all_the_same(nb)


@pytest.mark.parametrize("number", ["10", "11"])
def test_a_lesson_that_computes_takes_a_core_less_than_a_minute(tmp_path: Path, number: str) -> None:
    """What the kernel computes, on one core: what else the machine does at the time is not the lesson's."""
    (tmp_path / "notebooks").mkdir()
    (lesson,) = (ROOT / "notebooks").glob(f"{number}_*.ipynb")
    before = seconds_of_children()
    run_lesson(tmp_path, lesson)
    assert 1 < seconds_of_children() - before < SECONDS


def seconds_of_children() -> float:
    """Computed by processes that this one has started and that have ended, such as kernels."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime

"""The seam: an engine of a learner's parts answers as refimpl's does, and what fails in it is named."""

from __future__ import annotations

import ast
import builtins
import inspect
import os
import shutil
import sys
from pathlib import Path

import nbformat
import pytest
from engines import Alone, add, engine_of, record_steps, run, workload

import refimpl
from refimpl import CacheConfig, SchedulerConfig, exercise, proof, work
from refimpl.checks import steps
from refimpl.cli import main
from refimpl.parts import PartError, Parts, collect
from refimpl.parts.collect import KINDS
from refimpl.simulation.cost_model import CostModel
from refimpl.simulation.simulator import Simulator
from refimpl.simulation.workload import Lengths, poisson
from refimpl.viz.draw import memory

ROOT = Path(__file__).parents[2]
PLANT = "if getattr(__import__('builtins'), 'planted', None) == {0!r}: raise RuntimeError('planted in ' + {0!r})"

# Pools so small that groups are preempted: by swap with branches and caching, by recompute, and without caching.
SCENARIOS = [
    {"num_gpu_blocks": 26, "num_cpu_blocks": 400, "mode": "swap", "caching": True},
    {"num_gpu_blocks": 26, "num_cpu_blocks": 400, "mode": "swap"},
    {"num_gpu_blocks": 26, "num_cpu_blocks": 400, "caching": True},
]
ASKS = workload(20, branches=True)


def part_cells() -> dict[str, str]:
    """Grade id of each answer cell that belongs to a part -> the name by which an error names the part."""
    found = {}
    for path in sorted((ROOT / "solutions").glob("*/*.ipynb")):
        cells = exercise.read(path)
        for kind in KINDS:
            for exercise_id in steps():
                if exercise_id.startswith(kind.steps) and exercise_id[:2] == path.name[:2]:
                    name = kind.name if kind.field == "functions" else kind.field
                    found |= {cell.grade_id: name for cell in exercise.answers_of(exercise_id, cells)}
    return found


CELLS = part_cells()


def plant(source: str, grade_id: str) -> str:
    """The cell, its function raising when `builtins.planted` says so."""
    tree = ast.parse(source)
    (function,) = tree.body
    function.body.insert(1 if ast.get_docstring(function) else 0, ast.parse(PLANT.format(grade_id)).body[0])
    return ast.unparse(tree)


@pytest.fixture(scope="module")
def my_work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The solutions, saved by a learner who has hidden a `raise` in every part, none of which goes off by itself."""
    folder = tmp_path_factory.mktemp("a learner's") / "my_work"
    shutil.copytree(ROOT / "solutions", folder, ignore=shutil.ignore_patterns(".*", "README.md"))
    for path in folder.glob("*/*.ipynb"):
        nb = nbformat.read(path, as_version=4)
        for cell in nb.cells:
            grade_id = cell.metadata.get("nbgrader", {}).get("grade_id")
            if grade_id in CELLS:
                cell.source = plant(cell.source, grade_id)
        nbformat.write(nb, path)
    return folder


@pytest.fixture(scope="module")
def mine(my_work: Path) -> Parts:
    return collect(my_work, show=False)


def test_every_part_is_the_learners(mine: Parts) -> None:
    assert [(row.part, row.whose, row.why) for row in mine.rows] == [(kind.part, "yours", "") for kind in KINDS]
    for row in mine.rows:
        assert row.points == row.max_points > 0
        assert ".ipynb, 20" in row.where


@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_a_learners_parts_answer_as_refimpls_do(tiny_model, alone: Alone, mine: Parts, scenario) -> None:
    engine = engine_of(tiny_model, parts=mine, **scenario)
    decided = record_steps(engine)
    add(engine, ASKS)
    assert alone.differences(ASKS, run(engine)) == []
    assert sum(step.preempted for step in decided)


@pytest.mark.parametrize("grade_id", sorted(CELLS))
def test_a_raise_in_a_part_names_the_part(tiny_model, mine: Parts, monkeypatch, grade_id: str) -> None:
    """The learner's code is what runs: each of its functions in turn goes off, and is named with its cell."""
    monkeypatch.setattr(builtins, "planted", grade_id, raising=False)
    said = [message for scenario in SCENARIOS if (message := what_serving_says(tiny_model, mine, scenario))]
    assert said, f"nothing that serving does calls {grade_id}"
    assert said[0].startswith(f"your {CELLS[grade_id]}: `")
    assert f"RuntimeError: planted in {grade_id}" in said[0]
    assert f"cell {grade_id}, line " in said[0]


def what_serving_says(model, parts: Parts, scenario: dict) -> str:
    """What the error of the part says that fails; nothing where none does."""
    try:
        engine = engine_of(model, parts=parts, **scenario)
        add(engine, ASKS)
        run(engine)
    except PartError as error:
        return str(error)
    return ""


def test_what_the_reference_raises_is_not_blamed_on_a_part(mine: Parts) -> None:
    with pytest.raises(ZeroDivisionError), mine.at_work():
        raise ZeroDivisionError


def test_a_part_that_fails_its_check_is_refimpls_and_the_table_says_so(my_work: Path, tmp_path: Path) -> None:
    chapter = tmp_path / "03_uncached_allocator.ipynb"
    nb = nbformat.read(my_work / chapter.stem / chapter.name, as_version=4)
    (cell,) = (cell for cell in nb.cells if cell.metadata.get("nbgrader", {}).get("grade_id") == "03-free-answer")
    cell.source = cell.source.replace("block.ref_count -= 1", "block.ref_count -= 2")
    nbformat.write(nb, chapter)
    parts = collect(tmp_path, show=False)
    assert parts.uncached_allocator is None
    rows = {row.part: row for row in parts.rows}
    assert not rows["uncached allocator"].is_yours
    assert rows["uncached allocator"].why.startswith("03-free is ")
    assert rows["share_block_table"].is_yours
    assert rows["evictor"].why == f"no notebook of chapter 04 in {tmp_path}"
    line = next(line for line in parts.table().splitlines() if line.startswith("uncached allocator"))
    assert all(said in line for said in ("refimpl's", "03_uncached_allocator.ipynb, 20", "03-free is "))


def test_a_folder_without_work_gives_refimpls_parts(tiny_model, alone: Alone, tmp_path: Path, capsys) -> None:
    parts = collect(tmp_path / "nothing here")
    assert capsys.readouterr().out.count("refimpl's") == len(KINDS)
    engine = engine_of(tiny_model, parts=parts, **SCENARIOS[0])
    add(engine, ASKS)
    assert alone.differences(ASKS, run(engine)) == []


@pytest.mark.parametrize("name", ["BlockSpaceManager", "Scheduler", "PhysicalTokenBlock", "UncachedBlockAllocator"])
def test_refimpls_own_classes_are_refused(name: str) -> None:
    own = getattr(refimpl, name)
    for part in (own, type(name, (own,), {"nothing": "new"})):
        with pytest.raises(ValueError, match=f"{name} is refimpl's own; leave it out"):
            Parts(manager=part)


def test_refimpls_own_function_is_refused() -> None:
    with pytest.raises(ValueError, match="attention: paged_attention is refimpl's own"):
        Parts(attention=refimpl.paged_attention)


# A manager over arrays that inherits nothing, as an outsider would write it.


ARRAY_MANAGER = ROOT / "tests" / "second_designs" / "06_array.py"


@pytest.fixture
def array_manager() -> type:
    return proof.load(ARRAY_MANAGER)["BlockSpaceManager"]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_an_outsiders_manager_serves(tiny_model, alone: Alone, array_manager: type, scenario) -> None:
    engine = engine_of(tiny_model, parts=Parts(manager=array_manager), **scenario)
    decided = record_steps(engine)
    assert type(engine.block_manager) is array_manager
    add(engine, ASKS)
    assert alone.differences(ASKS, run(engine)) == []
    assert sum(step.preempted for step in decided)


def test_an_outsiders_manager_is_simulated_and_drawn(array_manager: type) -> None:
    parts = Parts(manager=array_manager)
    cache_config = CacheConfig(block_size=4, num_gpu_blocks=12, num_cpu_blocks=12)
    price = CostModel(0.5, 0.0, 0.0, 0.0, 0.0, kv_bytes_per_token=1)
    requests = list(poisson(9, rate=2.0, prompt=Lengths(6), output=Lengths(9)))
    drawn = []
    result = Simulator(cache_config, SchedulerConfig(max_model_len=32), price, parts=parts).run(
        requests, on_step=lambda scheduler, *_: drawn.append(memory(scheduler.block_manager).describe())
    )
    expected = Simulator(cache_config, SchedulerConfig(max_model_len=32), price).run(requests)
    assert (result.finished, result.steps, result.seconds) == (expected.finished, expected.steps, expected.seconds)
    assert "12 blocks" in drawn[-1]


def collected_with_a_manager(source: str, my_work: Path, folder: Path) -> Parts:
    """The parts of somebody who has written a manager of their own into chapter 7's notebook."""
    nb = nbformat.read(my_work / "07_swap" / "07_swap.ipynb", as_version=4)
    for cell in nb.cells:
        if cell.id == "07-given-class":
            cell.source = source
        elif cell.metadata.get("nbgrader", {}).get("solution"):
            cell.source = "pass"
    nbformat.write(nb, folder / "07_swap.ipynb")
    return collect(folder, show=False)


def test_a_class_that_stands_alone_is_the_manager_when_it_passes_all_chapters(my_work: Path, tmp_path: Path) -> None:
    parts = collected_with_a_manager(ARRAY_MANAGER.read_text(encoding="utf-8"), my_work, tmp_path)
    assert parts.manager.__module__ == "my_chapter_07"
    managers = [row for row in parts.rows if row.part.startswith("manager")]
    assert len(managers) == 4
    assert all(row.is_yours and row.where.startswith("07_swap.ipynb") for row in managers)


def test_a_class_that_stands_alone_and_fails_another_chapter_is_left_out(my_work: Path, tmp_path: Path) -> None:
    source = ARRAY_MANAGER.read_text(encoding="utf-8")
    source += "\n    def get_common_computed_block_ids(self, seqs):\n        return []\n"
    parts = collected_with_a_manager(source, my_work, tmp_path)
    assert parts.manager is None
    (row,) = (row for row in parts.rows if row.part == "manager: swap")
    assert (row.points, row.why.startswith("your class stands alone, and does not pass every step")) == (10, True)


def test_chapters_that_pass_alone_and_not_together_are_left_out(my_work: Path, tmp_path: Path) -> None:
    """A helper of chapter 7's has the name of one that chapter 5 wrote, and does something else."""
    for stem in ("05_can_allocate", "07_swap"):
        shutil.copy(my_work / stem / f"{stem}.ipynb", tmp_path)
    chapter = tmp_path / "07_swap.ipynb"
    nb = nbformat.read(chapter, as_version=4)
    extra = "BlockSpaceManager.allocate_prompt = lambda self, group: refimpl.BlockSpaceManager.allocate(self, group)"
    nb.cells.insert(4, nbformat.v4.new_code_cell(extra))
    nbformat.write(nb, chapter)
    nb = nbformat.read(tmp_path / "05_can_allocate.ipynb", as_version=4)
    (cell,) = (c for c in nb.cells if c.metadata.get("nbgrader", {}).get("grade_id") == "05-allocate-answer")
    cell.source += "\n\nBlockSpaceManager.allocate_prompt = allocate\n"
    cell.source += "BlockSpaceManager.allocate = lambda self, group: self.allocate_prompt(group)\n"
    nbformat.write(nb, tmp_path / "05_can_allocate.ipynb")
    parts = collect(tmp_path, show=False)
    assert parts.manager is None
    (row,) = (row for row in parts.rows if row.part == "manager: admission")
    assert row.why.startswith("it passes alone, and not with your other chapters' methods: 05-allocate is not yours")


def test_the_copy_saved_last_counts(my_work: Path, tmp_path: Path) -> None:
    for name, seconds in (("a copy of mine.ipynb", 2_000_000_000), ("03_uncached_allocator.ipynb", 1_900_000_000)):
        copy = shutil.copy(my_work / "03_uncached_allocator" / "03_uncached_allocator.ipynb", tmp_path / name)
        os.utime(copy, (seconds, seconds))
    (row,) = (row for row in collect(tmp_path, show=False).rows if row.part == "uncached allocator")
    assert row.where.startswith("a copy of mine.ipynb, 2033-")


# In a terminal: python -m refimpl generate --my-work FOLDER


def generate(model: Path, folder: Path) -> int:
    return main(["generate", "--model", str(model), "--raw", "--max-tokens", "3", "--my-work", str(folder), "ab"])


@pytest.fixture
def chapter_3(my_work: Path, tmp_path: Path) -> Path:
    shutil.copy(my_work / "03_uncached_allocator" / "03_uncached_allocator.ipynb", tmp_path)
    return tmp_path


def test_generate_serves_with_a_learners_parts(tiny_folder: Path, chapter_3: Path, capsys) -> None:
    assert generate(tiny_folder, chapter_3) == 0
    said = capsys.readouterr()
    assert "uncached allocator    yours       7 of 7" in said.err
    assert "part " not in said.out


def test_generate_says_which_part_failed(tiny_folder: Path, chapter_3: Path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(builtins, "planted", "03-allocate-answer", raising=False)
    notebook = chapter_3 / "03_uncached_allocator.ipynb"
    notebook.write_text(notebook.read_text().replace("raise RuntimeError", "if within_serving(): raise RuntimeError"))
    serving = {"add_request", "step"}  # and not checked
    monkeypatch.setattr(
        builtins, "within_serving", lambda: serving & {frame.function for frame in inspect.stack()}, raising=False
    )
    assert generate(tiny_folder, chapter_3) == 1
    assert "generate: your uncached_allocator: `allocate` ended in RuntimeError: planted" in capsys.readouterr().err


def test_generate_wants_the_folder_that_it_was_given(tiny_folder: Path, tmp_path: Path, capsys) -> None:
    assert generate(tiny_folder, tmp_path / "no such") == 2
    assert "generate: there is no folder" in capsys.readouterr().err


def test_a_chapter_whose_checks_cannot_run_here_is_refimpls(chapter_3: Path, monkeypatch) -> None:
    def missing(number: str) -> list:
        if number == "09":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
        return chapter_steps(number)

    chapter_steps = work.chapter_steps
    monkeypatch.setattr(sys.modules["refimpl.parts.collect"], "chapter_steps", missing)
    rows = {row.part: row for row in collect(chapter_3, show=False).rows}
    assert rows["uncached allocator"].is_yours
    assert rows["write"].why.startswith("This needs torch, which is not installed here")

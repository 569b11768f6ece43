"""`python -m refimpl release`: what learners get is exactly what the solutions give, or nothing changes."""

import importlib
import shlex
import stat
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from builders import code, graded, notebook, printed, solution_notebook

from refimpl import notebooks, release

CHAPTER = "03_owners"
COURSE_ROOT = Path(__file__).parents[2]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A course of one chapter, with the real nbgrader_config.py and notes that no learner should get."""
    chapter = tmp_path / "solutions" / CHAPTER
    chapter.mkdir(parents=True)
    notebooks.write(solution_notebook(), chapter / f"{CHAPTER}.ipynb")
    (tmp_path / "solutions" / "README.md").write_text("For instructors.")
    (tmp_path / "nbgrader_config.py").write_bytes((COURSE_ROOT / "nbgrader_config.py").read_bytes())
    return tmp_path


def solution(root: Path) -> Path:
    return root / "solutions" / CHAPTER / f"{CHAPTER}.ipynb"


def exercise(root: Path) -> Path:
    return root / "exercises" / CHAPTER / f"{CHAPTER}.ipynb"


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_released_notebook_has_the_stub_in_place_of_the_answer(root: Path) -> None:
    assert release.main(root=root) == 0
    cells = {cell.id: cell for cell in notebooks.read(exercise(root)).cells}
    answer = cells["03-free-solution"].source
    assert "# YOUR CODE HERE\n    raise NotImplementedError()" in answer
    assert 'def free(owners):\n    """Return the owners that are left."""' in answer
    assert "remaining_owners" not in exercise(root).read_text()


def test_the_released_check_is_locked_and_keeps_its_points(root: Path) -> None:
    release.main(root=root)
    check = next(cell for cell in notebooks.read(exercise(root)).cells if cell.id == "03-free-check")
    assert (check.metadata.editable, check.metadata.deletable) == (False, False)
    assert (check.metadata.nbgrader.grade_id, check.metadata.nbgrader.points) == ("03-free", 2.0)


def test_outputs_and_counts_do_not_reach_the_learner(root: Path) -> None:
    release.main(root=root)
    cells = [cell for cell in notebooks.read(exercise(root)).cells if cell.cell_type == "code"]
    assert [cell.outputs for cell in cells] == [[]] * 3
    assert [cell.execution_count for cell in cells] == [None] * 3


def test_a_second_run_gives_the_same_bytes_and_leaves_nothing_else_behind(root: Path) -> None:
    release.main(root=root)
    first = tree(root)
    release.main(root=root)
    assert tree(root) == first
    assert sorted(path.name for path in root.iterdir()) == ["exercises", "nbgrader_config.py", "solutions"]
    assert sorted(path.name for path in (root / "exercises").iterdir()) == [CHAPTER]
    assert stat.S_IMODE(exercise(root).stat().st_mode) == 0o644


def test_the_python_that_saved_a_solution_does_not_show_in_the_exercise(root: Path) -> None:
    release.main(root=root)
    before = exercise(root).read_bytes()
    nb = notebooks.read(solution(root))
    nb.metadata.language_info.version = "3.13.1"
    nb.metadata.widgets = {}
    nb.cells[1].metadata.execution = {"iopub.execute_input": "2026-01-01T00:00:00Z"}
    nbformat.write(nb, solution(root))
    release.main(root=root)
    assert exercise(root).read_bytes() == before


def test_check_names_each_file_and_the_command_that_mends_it(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    release.main(root=root)
    second = root / "solutions" / "04_more"
    second.mkdir()
    notebooks.write(solution_notebook(), second / "04_more.ipynb")
    exercise(root).write_text(exercise(root).read_text().replace("owners", "holders"))
    (root / "exercises" / CHAPTER / "notes.txt").write_text("mine")
    before = tree(root)
    capsys.readouterr()

    assert release.main(check=True, root=root) == 1
    out = capsys.readouterr().out
    assert f"exercises/{CHAPTER}/{CHAPTER}.ipynb differs" in out
    assert f"exercises/{CHAPTER}/notes.txt is extra" in out
    assert "exercises/04_more/04_more.ipynb is missing" in out
    assert "python -m refimpl release" in out
    assert tree(root) == before

    (root / "exercises" / CHAPTER / "notes.txt").unlink()
    assert release.main(root=root) == 0
    assert release.main(check=True, root=root) == 0


EXTRA = {
    "notes": f"exercises/{CHAPTER}/my notes.txt",
    "a hidden file": f"exercises/{CHAPTER}/.draft.ipynb",
    "a hidden folder": "exercises/.old/03_owners.ipynb",
    "a file beside the chapters": "exercises/answers.md",
    "a former chapter": "exercises/02_former/02_former.ipynb",
    "a file called like a folder of programs": f"exercises/{CHAPTER}/.ipynb_checkpoints",
    "a folder called almost like one": f"exercises/{CHAPTER}/__pycache__old/free.py",
}


@pytest.mark.parametrize("name", EXTRA.values(), ids=EXTRA.keys())
@pytest.mark.parametrize("as_link", [False, True], ids=["file", "link"])
def test_what_release_did_not_write_is_named_and_never_removed(
    root: Path, capsys: pytest.CaptureFixture[str], name: str, as_link: bool
) -> None:
    release.main(root=root)
    (root / name).parent.mkdir(exist_ok=True)
    if as_link:
        (root / name).symlink_to(root / "nowhere")
    else:
        (root / name).write_text("remaining_owners")
    exercise(root).write_text("{}")
    before = tree(root / "exercises")
    capsys.readouterr()

    assert release.main(check=True, root=root) == 1
    assert f"{name} is extra: no notebook in solutions/ gives it\n" in capsys.readouterr().out
    assert release.main(root=root) == 1
    error = capsys.readouterr().err
    assert f"No notebook in solutions/ gives {name}." in error
    assert f"Nothing was changed; when nobody needs them: rm {shlex.quote(name)}\n" in error
    assert tree(root / "exercises") == before

    subprocess.run(error.splitlines()[-1].split("needs them: ")[1], shell=True, cwd=root, check=True)
    assert release.main(root=root) == 0
    assert release.main(check=True, root=root) == 0


def test_a_link_in_the_place_of_an_exercise_is_mended_and_its_target_stays(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    release.main(root=root)
    content = exercise(root).read_bytes()
    elsewhere = exercise(root).rename(root / "elsewhere.ipynb")
    exercise(root).symlink_to(elsewhere)
    capsys.readouterr()
    assert release.main(check=True, root=root) == 1
    assert f"exercises/{CHAPTER}/{CHAPTER}.ipynb is no plain file\n" in capsys.readouterr().out
    assert release.main(root=root) == 0
    assert not exercise(root).is_symlink()
    assert exercise(root).read_bytes() == elsewhere.read_bytes() == content


@pytest.mark.parametrize("place", [f"exercises/{CHAPTER}", "exercises"])
def test_a_link_in_the_place_of_a_folder_is_named(root: Path, capsys: pytest.CaptureFixture[str], place: str) -> None:
    release.main(root=root)
    elsewhere = (root / place).rename(root / "elsewhere")
    (root / place).symlink_to(elsewhere)
    before = tree(elsewhere)
    capsys.readouterr()
    assert release.main(check=True, root=root) == 1
    assert f"{place} is extra" in capsys.readouterr().out
    assert release.main(root=root) == 1
    assert (root / place).is_symlink()
    assert tree(elsewhere) == before


def test_an_empty_folder_is_no_difference_because_git_carries_none(root: Path) -> None:
    release.main(root=root)
    (root / "exercises" / "02_former" / "__pycache__").mkdir(parents=True)
    assert release.main(check=True, root=root) == 0
    assert release.main(root=root) == 0


def test_checkpoints_of_jupyterlab_neither_leak_nor_count(root: Path) -> None:
    checkpoints = solution(root).parent / ".ipynb_checkpoints"
    checkpoints.mkdir()
    (checkpoints / f"{CHAPTER}-checkpoint.ipynb").write_bytes(solution(root).read_bytes())
    (solution(root).parent / ".draft.md").write_text("remaining_owners")
    release.main(root=root)
    assert [path.name for path in exercise(root).parent.iterdir()] == [f"{CHAPTER}.ipynb"]
    kept = checkpoints.rename(exercise(root).parent / ".ipynb_checkpoints")
    assert release.main(check=True, root=root) == 0

    before = tree(kept)
    exercise(root).write_text("{}")
    assert release.main(root=root) == 0
    assert before
    assert tree(kept) == before, "a checkpoint may be all that is left of somebody's work"


def spoiled(kind: str) -> nbformat.NotebookNode:
    nb = solution_notebook()
    answer = next(cell for cell in nb.cells if cell.id == "03-free-solution")
    if kind == "duplicate grade id":
        answer.metadata.nbgrader.grade_id = "03-free"
    elif kind == "unclosed region":
        answer.source = answer.source.replace("### END SOLUTION", "")
    elif kind == "region outside a solution cell":
        del answer.metadata["nbgrader"]
    return nb


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("duplicate grade id", "Duplicate grade id: 03-free"),
        ("unclosed region", "no end solution statement found"),
        ("region outside a solution cell", "Solution region detected in a non-solution cell"),
    ],
)
def test_a_solution_that_cannot_be_released_is_named_and_exercises_stay(
    root: Path, capsys: pytest.CaptureFixture[str], kind: str, reason: str
) -> None:
    release.main(root=root)
    before = tree(root / "exercises")
    early = root / "solutions" / "01_good"  # comes first, so half of the work is done when the bad one is met
    early.mkdir()
    notebooks.write(solution_notebook(), early / "01_good.ipynb")
    notebooks.write(spoiled(kind), solution(root))
    capsys.readouterr()

    assert release.main(root=root) == 1
    printed_error = capsys.readouterr().err
    assert f"solutions/{CHAPTER} cannot be released" in printed_error
    assert reason in printed_error
    assert len(printed_error.strip().splitlines()) == 1
    assert tree(root / "exercises") == before
    assert not list(root.glob(".release-*"))


def test_a_solution_that_is_no_notebook_is_named(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    solution(root).write_text('{"cells": [')
    assert release.main(root=root) == 1
    assert f"solutions/{CHAPTER} cannot be released" in capsys.readouterr().err
    assert not (root / "exercises").exists()


def test_a_chapter_folder_must_hold_the_notebook_of_its_name(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    solution(root).rename(solution(root).with_name("owners-Copy1.ipynb"))
    assert release.main(root=root) == 1
    assert f"must hold one notebook, {CHAPTER}.ipynb; it holds owners-Copy1.ipynb" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["answers.md", f"backup/{CHAPTER}.ipynb"])
def test_nothing_that_lies_beside_a_solution_is_given_to_learners(
    root: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """L1. nbgrader would copy every file of the chapter's folder."""
    beside = solution(root).parent / name
    beside.parent.mkdir(exist_ok=True)
    beside.write_bytes(solution(root).read_bytes())
    assert release.main(root=root) == 1
    assert f"must hold one notebook, {CHAPTER}.ipynb; it holds " in capsys.readouterr().err
    assert not (root / "exercises").exists()


def test_without_a_folder_of_solutions_nothing_is_tried(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert release.main(root=tmp_path) == 2
    assert "There is no folder" in capsys.readouterr().err
    (tmp_path / "solutions").mkdir()
    assert release.main(root=tmp_path) == 2
    assert "holds no chapter" in capsys.readouterr().err


def test_without_nbgrader_one_sentence_says_what_to_install(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("nbgrader", "nbclient", "nbformat"):
        monkeypatch.setitem(sys.modules, name, None)
    for name in ("refimpl.release", "refimpl.notebooks"):
        monkeypatch.delitem(sys.modules, name)
    assert importlib.import_module("refimpl.release").main(root=root) == 2
    assert "`make grader` installs it" in capsys.readouterr().err
    assert not (root / "exercises").exists()


def test_when_the_last_move_fails_the_old_exercises_come_back(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release.main(root=root)
    before = tree(root / "exercises")
    extra = graded(code("print('new')", "new", printed("new\n")), "03-new", 1.0)
    notebooks.write(notebook(*solution_notebook().cells, extra), solution(root))
    really = Path.rename

    def rename(source: Path, target: Path) -> Path:
        if target.name == "exercises" and source.name == "exercises":
            raise OSError("no space left on device")
        return really(source, target)

    monkeypatch.setattr(Path, "rename", rename)
    with pytest.raises(OSError, match="no space left"):
        release.main(root=root)
    assert tree(root / "exercises") == before

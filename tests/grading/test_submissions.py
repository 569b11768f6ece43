"""Which notebooks in a folder are whose, and what is read of a file before anything of it is run."""

import json
import os
import sys
from pathlib import Path

import pytest
from handed_in import HandedIn

from refimpl.grade.limits import MIB, Limits
from refimpl.grade.submissions import NothingToGrade, Submission, submissions

ASSIGNMENTS = ["03_uncached_allocator", "05_can_allocate"]


def hand_in(path: Path, content: bytes | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(HandedIn("03").as_bytes() if content is None else content)
    return path


def found(folder: Path, limits: Limits | None = None) -> list[Submission]:
    return submissions([folder], ASSIGNMENTS, limits or Limits())


@pytest.mark.parametrize(
    "path",
    [
        "Zoë d'Arc/03_uncached_allocator/03_uncached_allocator.ipynb",
        "Zoë d'Arc/Exercise 3-Copié (1).ipynb",
        "Zoë d'Arc/my_work/03_uncached_allocator/x.ipynb",
        "Zoë d'Arc.ipynb",
    ],
)
def test_a_student_is_a_folder_or_a_file_of_that_name(tmp_path: Path, path: str) -> None:
    """F19. Whatever the notebook is called and however deep it lies."""
    hand_in(tmp_path / path)
    (only,) = found(tmp_path)
    assert (only.student, only.assignment, only.problem) == ("Zoë d'Arc", "03_uncached_allocator", "")
    assert only.file == "03_uncached_allocator.ipynb"


def test_what_programs_leave_behind_is_nobodys(tmp_path: Path) -> None:
    hand_in(tmp_path / "bob" / "03.ipynb")
    hand_in(tmp_path / "bob" / ".ipynb_checkpoints" / "03-checkpoint.ipynb")
    hand_in(tmp_path / "__MACOSX" / "bob" / "._03.ipynb")
    assert [each.student for each in found(tmp_path)] == ["bob"]


def test_of_two_notebooks_of_a_chapter_the_one_saved_last_counts_and_the_other_is_named(tmp_path: Path) -> None:
    old, new = hand_in(tmp_path / "bob" / "a.ipynb"), hand_in(tmp_path / "bob" / "b.ipynb")
    os.utime(old, (1, 1))
    (only,) = found(tmp_path)
    assert only.path == new
    assert only.notes == (f"{old} does not count: b.ipynb was saved later, or can be read.",)


def test_a_name_that_nbgrader_would_take_for_a_pattern_is_spelt_otherwise(tmp_path: Path) -> None:
    hand_in(tmp_path / "bob [group 2]" / "03.ipynb")
    assert [each.student for each in found(tmp_path)] == ["bob (group 2)"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "the file is not a Jupyter notebook: it is empty"),
        (b'{"cells": [', "the file is not a Jupyter notebook: it is not JSON"),
        (b"\xff\xfe", "the file is not a Jupyter notebook: it is not JSON"),
        (b"[" * 100_000, "the file is not a Jupyter notebook: it is not JSON"),
        (b"[]", "the file is not a Jupyter notebook: its JSON lists no cells"),
        (b'{"cells": [3]}', "the file is not a Jupyter notebook: its JSON lists no cells"),
        (b'{"cells": []}', "no cell of the notebook is marked as an answer or a check of a step"),
        (HandedIn("05").as_bytes(), "the notebook is of chapter 05, and was handed in for chapter 03"),
    ],
)
def test_what_cannot_be_run_is_said_and_placed_by_its_name(tmp_path: Path, content: bytes, problem: str) -> None:
    hand_in(tmp_path / "bob" / "03_uncached_allocator" / "x.ipynb", content)
    (only,) = found(tmp_path)
    assert (only.assignment, only.problem, only.notebook) == ("03_uncached_allocator", problem, b"")


@pytest.mark.parametrize("name", ["03-03-2026/hw.ipynb", "03 first try.ipynb", "homework.ipynb"])
def test_what_the_cells_say_counts_more_than_a_number_in_a_name(tmp_path: Path, name: str) -> None:
    """And most of the cells more than one that was copied from another chapter."""
    notebook = HandedIn("05")
    notebook.cells.insert(0, HandedIn("03").cell("03-free-answer"))
    hand_in(tmp_path / "bob" / name, notebook.as_bytes())
    assert [(each.assignment, each.problem) for each in found(tmp_path)] == [("05_can_allocate", "")]


def test_a_notebook_that_lost_its_marks_is_known_by_its_checks_and_a_cell_without_anything_is_empty(
    tmp_path: Path,
) -> None:
    content = json.loads(HandedIn("03").as_bytes())
    for cell in content["cells"]:
        cell["metadata"] = {}
    content["cells"] += [{"cell_type": "code"}, {"cell_type": {}, "source": None, "metadata": None}]
    content["cells"][0]["metadata"] = {"nbgrader": {"grade_id": ["x"]}}
    hand_in(tmp_path / "bob" / "x.ipynb", json.dumps(content).encode())
    assert [(each.assignment, each.problem) for each in found(tmp_path)] == [("03_uncached_allocator", "")]


def test_two_students_are_never_one(tmp_path: Path) -> None:
    for name in ("a[1]", "a(1)", "bob", "Bob", "bob "):
        hand_in(tmp_path / name / "03.ipynb")
    assert len({each.student.casefold() for each in found(tmp_path)}) == 5


@pytest.mark.parametrize("name", [b"Zo\xeb", b"a\nb", b"\x1b[31m", b".dot"])
def test_a_name_that_no_file_can_hold_is_spelt_otherwise(tmp_path: Path, name: bytes) -> None:
    hand_in(Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)) / "03.ipynb")
    (only,) = found(tmp_path)
    assert only.student.encode("utf-8")
    assert only.student.isprintable()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such files")
def test_what_is_no_file_or_leads_out_of_the_students_folder_is_said(tmp_path: Path) -> None:
    other = hand_in(tmp_path / "elsewhere" / "03_uncached_allocator.ipynb")
    for student in ("link", "nowhere", "pipe", "folder"):
        (tmp_path / "class" / student).mkdir(parents=True)
    place = "03_uncached_allocator.ipynb"
    (tmp_path / "class" / "link" / place).symlink_to(other)
    (tmp_path / "class" / "nowhere" / place).symlink_to("nothing.ipynb")
    os.mkfifo(tmp_path / "class" / "pipe" / place)
    (tmp_path / "class" / "folder" / place).mkdir()
    assert {each.student: each.problem for each in found(tmp_path / "class")} == {
        "link": "it is a link to a file outside the student's folder",
        "nowhere": "it is no file",
        "pipe": "it is no file",
        "folder": "it is no file",
    }


def test_a_file_of_no_known_chapter_is_placed_nowhere(tmp_path: Path) -> None:
    hand_in(tmp_path / "bob" / "notes.ipynb", b'{"cells": []}')
    hand_in(tmp_path / "eve" / "07.ipynb", HandedIn("07").as_bytes())
    assert [(each.student, each.assignment) for each in found(tmp_path)] == [("bob", ""), ("eve", "")]
    assert found(tmp_path)[1].problem == "chapter 07 is not one of this course's exercises"


def test_a_file_over_the_limit_is_not_read(tmp_path: Path) -> None:
    hand_in(tmp_path / "bob" / "03.ipynb", b" " * 3_000_000)
    (only,) = found(tmp_path, Limits(notebook=2 * 2**20))
    assert only.problem == "the file has 3 MiB, the limit is 2"


def test_what_cells_printed_and_what_a_learner_added_to_them_is_left_behind(tmp_path: Path) -> None:
    notebook = HandedIn("03")
    cell = notebook.cell("03-free-answer")
    cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "x" * 1_000_000}]
    cell["metadata"]["mine"] = "x" * 1_000_000
    hand_in(tmp_path / "bob" / "03.ipynb", notebook.as_bytes())
    (only,) = found(tmp_path)
    assert len(only.notebook) < 100_000
    cells = json.loads(only.notebook)["cells"]
    assert [cell["source"] for cell in cells] == [
        "".join(cell["source"]) for cell in json.loads(notebook.as_bytes())["cells"]
    ]


def test_the_limits_are_those_that_instructors_read_of() -> None:
    most, page = Limits(), (Path(__file__).parents[2] / "solutions" / "README.md").read_text("utf-8")
    times = f"{most.seconds:g} seconds (`--seconds`), {most.cell_seconds:g} for one cell (`--cell-seconds`)"
    room = f"{most.memory // MIB} MiB of memory (`--memory`), {most.processes} processes"
    assert f"{times}, {most.check_seconds:g} for one check, {room} and files of {most.file_size // MIB} MiB" in page


def test_a_folder_that_is_not_there_or_empty_is_said(tmp_path: Path) -> None:
    with pytest.raises(NothingToGrade, match="there is no folder .*nowhere"):
        found(tmp_path / "nowhere")
    with pytest.raises(NothingToGrade, match="no notebook lies in .*: a folder a student is wanted"):
        found(tmp_path)

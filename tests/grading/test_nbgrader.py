"""nbgrader's own commands on a course folder: release, autograde, formgrader's button, feedback, export.

Four students hand in chapter 3; whichever way they are graded, the marks are the same, and what comes back to them
says what is wrong and gives nothing away.
"""

import csv
import html
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from handed_in import HandedIn, chapter, chapters
from planted import FREE

from refimpl import cli
from refimpl.checks import steps
from refimpl.checks.catalogue import find
from refimpl.grade.restore import digest_of
from refimpl.release import nbgrader_config

pytest.importorskip("nbgrader", reason="grading with nbgrader needs nbgrader: make grader")
from nbgrader.api import Gradebook
from nbgrader.apps import NbGraderAPI
from nbgrader.converters import GenerateAssignment
from nbgrader.coursedir import CourseDirectory

ROOT = Path(__file__).parents[2]
CHAPTER = "03_uncached_allocator"
LONG = 20  # characters: a shorter line is not an answer
Marks = dict[str, dict[str, float]]  # student -> step -> points

LOUD = f"""
import os, sys, warnings
os.write(2, b"a library says something\\n")
warnings.warn("a warning")
get_ipython().events.register("pre_run_cell", lambda info: print("and again", file=sys.stderr))
for number in range(200_000):
    print("line", number)
{FREE}
"""


def right_and_loud() -> HandedIn:
    """Writes to stderr in its cell, and in each that follows before its result; prints 200,000 lines."""
    notebook = HandedIn("03")
    notebook.write("03-free-answer", LOUD)
    return notebook


def wrong() -> HandedIn:
    """A misconception, and an error."""
    notebook = HandedIn("03")
    notebook.answer_wrongly(find("03-free"), ROOT / "tests/mutants/03-free/changed-before-refusing.py")
    notebook.write("03-share-answer", "def share_block_table(block_table):\n    return len(block_table) / 0")
    return notebook


def tampered() -> HandedIn:
    """A check cell less, one more, and one that always passes below a wrong answer."""
    notebook = HandedIn("03")
    notebook.cells.pop(notebook.at("03-allocate"))
    notebook.copy("03-free", before="03-share-task")
    notebook.write("03-share-answer", "def share_block_table(block_table):\n    return None")
    notebook.write("03-share", "assert True")
    return notebook


STUDENTS: dict[str, Callable[[], HandedIn]] = {
    "Zoë Loud": right_and_loud,
    "wrong": wrong,
    "tampered": tampered,
    "untouched": lambda: HandedIn("03", is_solved=False),
}
MARKS: Marks = {
    "Zoë Loud": {"03-allocate": 3.0, "03-free": 4.0, "03-share": 3.0},
    "wrong": {"03-allocate": 3.0, "03-free": 2.86, "03-share": 0.0},
    "tampered": {"03-allocate": 3.0, "03-free": 4.0, "03-share": 0.0},
    "untouched": {"03-allocate": 0.0, "03-free": 0.0, "03-share": 0.0},
}


@pytest.fixture(scope="module", autouse=True)
def _an_activated_environment() -> Iterator[None]:
    """nbgrader starts `alembic` by its name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
        yield


def nbgrader(course: Path, *arguments: str) -> str:
    """What the command says, in the course's folder, where nothing of the checkout is."""
    command = [sys.executable, "-P", "-m", "nbgrader", *arguments]
    done = subprocess.run(command, cwd=course, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def config_of(course: Path) -> Any:
    config = nbgrader_config(course)
    config.CourseDirectory.root = str(course)
    return config


def new_course(folder: Path, names: list[str]) -> Path:
    """A course of these chapters, in which nothing was done."""
    for name in names:
        shutil.copytree(ROOT / "solutions" / name, folder / "solutions" / name)
        shutil.copytree(ROOT / "exercises" / name, folder / "exercises" / name)
    shutil.copy(ROOT / "nbgrader_config.py", folder)
    return folder


def hand_in(course: Path, student: str, notebook: HandedIn) -> Path:
    path = course / "submitted" / student / CHAPTER / f"{CHAPTER}.ipynb"
    path.parent.mkdir(parents=True)
    path.write_bytes(notebook.as_bytes())
    return path


def gradebook(course: Path) -> Gradebook:
    return Gradebook(f"sqlite:///{course / 'gradebook.db'}")


def marks_in(course: Path) -> Marks:
    """What the gradebook has; a step that waits for a person has -1 points."""
    with gradebook(course) as book:
        return {
            submission.student.id: {
                grade.name: -1.0 if grade.needs_manual_grade else grade.score
                for notebook in submission.notebooks
                for grade in notebook.grades
            }
            for submission in book.assignment_submissions(CHAPTER)
        }


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A course whose chapter 3 was released, autograded and returned, all by nbgrader's commands."""
    course = new_course(tmp_path_factory.mktemp("course"), [CHAPTER])
    for student, notebook in STUDENTS.items():
        hand_in(course, student, notebook())
    said = nbgrader(course, "generate_assignment", CHAPTER, "--force")
    said += nbgrader(course, "autograde", CHAPTER)
    nbgrader(course, "generate_feedback", CHAPTER)
    assert "Warning" not in said
    return course


# Ids, points and bytes


def test_every_chapter_is_released_as_committed_with_the_ids_and_points_of_the_checks(tmp_path: Path) -> None:
    course = new_course(tmp_path / "course", list(chapters().values()))
    config = config_of(course)
    for name in chapters().values():
        release = GenerateAssignment(coursedir=CourseDirectory(config=config, assignment_id=name), config=config)
        release.force = True
        release.start()
        released = f"exercises/{name}/{name}.ipynb"
        assert (course / released).read_bytes() == (ROOT / released).read_bytes()
    with gradebook(course) as book:
        known = {
            cell.name: cell.max_score
            for assignment in book.assignments
            for notebook in assignment.notebooks
            for cell in notebook.grade_cells
        }
    expected = {name: float(step.points) for name, step in steps().items() if name[:2] in chapters()}
    assert known == expected


# Marks


def test_nbgrader_autograde_gives_the_expected_marks(graded: Path) -> None:
    """F01, F02, F03, G1, G2, G4, G5, G7: loud, wrong, tampered with, untouched."""
    assert marks_in(graded) == MARKS


def test_refimpl_grade_gives_the_same_marks_and_the_same_notebooks(
    graded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What nbgrader's command has marked is known to `refimpl grade`, which only enters it."""
    course = new_course(tmp_path / "course", [CHAPTER])
    for name in ("submitted", "marks"):
        shutil.copytree(graded / name, course / name)
    assert cli.main(["grade", str(course / "submitted"), "--course", str(course)]) == 0
    said = capsys.readouterr()
    assert "4 submissions: 0 marked now, 4 before" in said.err
    assert re.search(rf"^wrong +{CHAPTER} +5\.86 of 10$", said.out, re.MULTILINE)
    assert marks_in(course) == MARKS
    for student in STUDENTS:
        assert cells(course, student) == cells(graded, student)


def cells(course: Path, student: str) -> list[tuple[Any, ...]]:
    """The marked notebook, but for the ids that are drawn anew for every cell."""
    import nbformat

    path = course / "autograded" / student / CHAPTER / f"{CHAPTER}.ipynb"
    assert digest_of(path) is not None
    read = nbformat.read(path, as_version=4)
    return [(cell.cell_type, cell.source, cell.metadata, cell.get("outputs")) for cell in read.cells]


def test_marks_given_by_hand_stay_when_a_submission_is_graded_again(graded: Path, tmp_path: Path) -> None:
    """By formgrader's button, and by `refimpl grade`."""
    course = tmp_path / "course"
    shutil.copytree(graded, course)
    with gradebook(course) as book:
        grade = book.find_grade("03-share", CHAPTER, CHAPTER, "wrong")
        grade.manual_score, grade.extra_credit = 1.5, 0.25
        book.find_comment("03-free-answer", CHAPTER, CHAPTER, "wrong").manual_comment = "Look first."
        book.db.commit()

    config = config_of(course)
    button = NbGraderAPI(CourseDirectory(config=config), config=config).autograde(CHAPTER, "wrong")
    assert button["success"], button
    assert by_hand(course) == (1.5, 0.25, "Look first.")
    shutil.rmtree(course / "autograded" / "wrong")
    assert cli.main(["grade", str(course / "submitted"), "--course", str(course)]) == 0
    assert by_hand(course) == (1.5, 0.25, "Look first.")


def by_hand(course: Path) -> tuple[float, float, str]:
    with gradebook(course) as book:
        grade = book.find_grade("03-share", CHAPTER, CHAPTER, "wrong")
        comment = book.find_comment("03-free-answer", CHAPTER, CHAPTER, "wrong")
        return grade.manual_score, grade.extra_credit, comment.manual_comment


def test_export_holds_the_marks(graded: Path, tmp_path: Path) -> None:
    nbgrader(graded, "export", "--to", str(tmp_path / "grades.csv"))
    with (tmp_path / "grades.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["assignment"] for row in rows} == {CHAPTER}
    found = {row["student_id"]: (float(row["score"]), float(row["max_score"])) for row in rows}
    assert found == {student: (pytest.approx(sum(marks.values())), 10.0) for student, marks in MARKS.items()}


def test_in_nbgraders_own_kernel_a_warning_costs_nothing_and_a_lost_check_is_marked(tmp_path: Path) -> None:
    """G2, G4: the settings for whoever takes our way of marking out."""
    course = new_course(tmp_path / "course", [CHAPTER])
    with (course / "nbgrader_config.py").open("a") as file:
        file.write('\nc.pop("Autograde")\n')
    notebook = HandedIn("03")
    notebook.write("03-free-answer", LOUD.replace("200_000", "3"))
    notebook.cells.pop(notebook.at("03-share"))
    hand_in(course, "loud", notebook)
    nbgrader(course, "generate_assignment", CHAPTER, "--force")
    nbgrader(course, "autograde", CHAPTER)
    assert not (course / "marks").exists()
    assert marks_in(course) == {"loud": MARKS["Zoë Loud"]}


# Feedback


@pytest.mark.parametrize("student", STUDENTS)
def test_feedback_gives_nothing_away(graded: Path, student: str) -> None:
    """No answer that the student did not write, no source of a check, no path of this machine; F12: less than 1 MB."""
    path = graded / "feedback" / student / CHAPTER / f"{CHAPTER}.html"
    page = path.read_text("utf-8")
    assert path.stat().st_size < 1_000_000
    written = STUDENTS[student]()
    assert given_away("03", page, text_in(written)) == set()
    for folder in (str(graded), str(ROOT), sys.prefix, str(Path.home())):
        assert folder not in page
    assert re.findall(r"(?<![\w/.])/(?:home|root|tmp|usr|work|var|Users)/\S+", text_of(page)) == []


def test_feedback_says_what_is_wrong(graded: Path) -> None:
    said = {
        student: text_of((graded / "feedback" / student / CHAPTER / f"{CHAPTER}.html").read_text("utf-8"))
        for student in STUDENTS
    }
    for words in ("look at the count before you change it", "ZeroDivisionError", "The shortest way to see it:"):
        assert words in said["wrong"]
    for words in ("check cell is missing", "check cell is there 2 times", "check cell was changed"):
        assert words in said["tampered"]
    assert said["untouched"].count("Not attempted yet") >= 1
    assert said["Zoë Loud"].count("Passed") == 3


def test_an_answer_or_a_check_in_feedback_would_be_seen() -> None:
    answer = "return block_table.copy()"
    page = "<pre>    <b>return</b> block_table.copy()</pre>"
    assert given_away("03", page, "") == {answer}
    assert given_away("03", page, f"x = 1; {answer}") == set()
    check = (ROOT / "refimpl/checks/engine.py").read_text("utf-8")
    assert given_away("03", f"<pre>{html.escape(check)}</pre>", "") >= set(lines(check))


def given_away(number: str, page: str, own: str) -> set[str]:
    """The lines of a chapter's answers, and of checks, that a page shows and neither student nor exercise wrote."""
    answers = {line for cell in chapter(number).solved if cell.is_answer for line in lines(cell.source)}
    checks = {line for path in (ROOT / "refimpl/checks").rglob("*.py") for line in lines(path.read_text("utf-8"))}
    shown, theirs = text_of(page), own + text_in(HandedIn(number, is_solved=False))
    return {line for line in answers | checks if line in shown and line not in theirs}


def text_in(notebook: HandedIn) -> str:
    return "\n".join(cell["source"] for cell in notebook.cells)


def lines(source: str) -> list[str]:
    return [line.strip() for line in source.splitlines() if len(line.strip()) >= LONG]


def text_of(page: str) -> str:
    """What a page says, without its tags, styles and scripts."""
    bare = re.sub(r"<(style|script)\b.*?</\1>", "", page, flags=re.DOTALL)
    return html.unescape(re.sub(r"<[^>]+>", "", bare))

"""`python -m refimpl grade` on a class: every planted case gets its marks and its sentence, whatever happens meanwhile.

Notebooks run behind bubblewrap where it works, and each test says whether it needs it. A cell may take 5 seconds here.
"""

import contextlib
import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import psutil
import pytest
from handed_in import HandedIn, chapters
from planted import Planted, Surroundings, cases, listening
from simulated_class import Expected, compare

from refimpl import cli
from refimpl.grade import Grading, walls
from refimpl.grade import cluster as cluster_module
from refimpl.grade.apart import CannotMark, Found, mark_apart
from refimpl.grade.cluster import cluster
from refimpl.grade.limits import Limits
from refimpl.grade.marks import Marks, marks_of
from refimpl.grade.submissions import Submission, submissions

ROOT = Path(__file__).parents[2]
CHAPTER = "03_uncached_allocator"
BROKEN = "def free(self, block:"
QUICK = Limits(cell_seconds=5.0, check_seconds=10.0)
HAS_BUBBLEWRAP = walls.bubblewrap() is not None
needs_bubblewrap = pytest.mark.skipif(not HAS_BUBBLEWRAP, reason="bubblewrap is not installed, or does not work here")


def hand_in(folder: Path, students: Iterable[str], **answers: str) -> None:
    for student in students:
        notebook = HandedIn("03")
        for name, source in answers.items():
            notebook.write(f"03-{name}-answer", source)
        path = folder / student / "03_uncached_allocator" / "03_uncached_allocator.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(notebook.as_bytes())


def grade(course: Path, folder: Path, *flags: str) -> int:
    return cli.main(["grade", str(folder), "--course", str(course), "--cell-seconds", "5", *flags])


def table(course: Path) -> list[dict[str, str]]:
    with (course / "marks" / "marks.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def totals(course: Path) -> dict[str, float]:
    found: dict[str, float] = {}
    for row in table(course):
        found[row["student"]] = found.get(row["student"], 0.0) + float(row["points"] or 0)
    return found


@contextlib.contextmanager
def handed_in(case: Planted, folder: Path) -> Iterator[Submission]:
    """The case as it is found in a class, while somebody listens at the loopback address."""
    with listening() as (port, callers):
        path = folder / (case.student or case.name) / case.file_name.removesuffix(".ipynb") / case.file_name
        path.parent.mkdir(parents=True)
        path.write_bytes(case.content(Surroundings(folder, port)))
        (submission,) = submissions([folder], chapters().values(), QUICK)
        yield submission
        assert callers == [], "an answer got through to the loopback address"


def differences(case: Planted, marks: Marks, **said: str) -> list[str]:
    """Where the marks are not the expected ones."""
    says = {**case.says, **{name.replace("_", "-"): pattern for name, pattern in said.items()}}
    expected = Expected(marks.student, case.chapter, case.name, case.marks, {}, says)
    return compare([expected], [{key: str(value) for key, value in row.items()} for row in marks.rows()])


def left_behind() -> list[str]:
    """Processes of submissions, marked by this process, that still run."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("REFIMPL_GRADE", "").startswith(f"{os.getpid()} "):
                found.append(f"{process.pid} {process.cmdline()}")
    return found


# Each case alone


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
@needs_bubblewrap
def test_a_planted_case_has_its_marks_and_its_sentence(case: Planted, tmp_path: Path) -> None:
    """F01, F02, F03, F04, F07, F08, F10, F12, F17."""
    with handed_in(case, tmp_path / "class") as submission:
        marks = Grading(ROOT, QUICK, uses_gradebook=False, kept_in=tmp_path / "marks").marks_of(submission)
    assert differences(case, marks) == []
    assert bool(marks.problem) == (not case.marks)
    assert left_behind() == []


HARMFUL = [case for case in cases() if case.needs_bubblewrap or case.needs_limits or "catches" in case.name]


@pytest.mark.parametrize("case", HARMFUL, ids=lambda case: case.name)
def test_without_bubblewrap_python_itself_and_the_limits_do_what_they_can(
    case: Planted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walls, "bubblewrap", lambda: None)
    alone = tmp_path / "in" / "a" / "deep" / "folder"  # what else lies in the system's own is not refused
    alone.mkdir(parents=True)
    monkeypatch.setattr(tempfile, "tempdir", str(alone))
    with handed_in(case, tmp_path / "class") as submission:
        found = mark_apart(submission.notebook, submission.file, QUICK, [str(tmp_path / "class")])
    marks = marks_of(submission.student, submission.assignment, "", found, QUICK)
    assert differences(case, marks, **({"03_free": "no network"} if case.name == "loopback-address" else {})) == []
    assert "network and files are only refused by Python itself" in marks.walls
    assert left_behind() == []


# A class


@pytest.fixture
def course(tmp_path: Path) -> Path:
    """A checkout's exercise, and nothing graded yet."""
    for name in ("exercises", "solutions"):
        shutil.copytree(ROOT / name / CHAPTER, tmp_path / "course" / name / CHAPTER)
    shutil.copy(ROOT / "nbgrader_config.py", tmp_path / "course")
    return tmp_path / "course"


def test_a_class_is_marked_and_told_and_what_is_marked_is_not_marked_again(
    course: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two workers; one file that is no notebook, one whose chapter nobody can tell; then a second run, and a change."""
    folder = tmp_path / "class"
    hand_in(folder, ["Zoë d'Arc", "bob"])
    hand_in(folder, ["eve"], free=BROKEN)
    (folder / "mallory" / CHAPTER).mkdir(parents=True)
    (folder / "mallory" / CHAPTER / "x.ipynb").write_text("{")
    (folder / "mallory" / "notes.ipynb").write_text("{")
    assert grade(course, folder, "--workers", "2") == 1
    said = capsys.readouterr()
    assert [line.split("  ")[0] for line in said.out.splitlines()] == ["Zoë d'Arc", "bob", "eve", "mallory"]
    assert "Not run: the file is not a Jupyter notebook: it is not JSON." in said.out
    assert "4 submissions: 4 marked now" in said.err
    assert f"in force: {walls.in_force()}" in said.err
    assert f"look at: {folder / 'mallory' / 'notes.ipynb'}: the file is not a Jupyter notebook" in said.err
    assert totals(course) == {"Zoë d'Arc": 10.0, "bob": 10.0, "eve": 6.0, "mallory": 0.0}
    assert gradebook(course) == totals(course)

    before = {path: path.stat().st_mtime_ns for path in (course / "marks").rglob("*.json")}
    hand_in(folder, ["eve"])
    assert grade(course, folder, "--workers", "1", "--json") == 1
    said = capsys.readouterr()
    assert "4 submissions: 1 marked now" in said.err
    assert {path.parent.name for path, at in before.items() if path.stat().st_mtime_ns != at} == {"eve"}
    assert {row["student"] for row in json.loads(said.out)} == {"Zoë d'Arc", "bob", "eve", "mallory"}
    assert gradebook(course) == totals(course) == {"Zoë d'Arc": 10.0, "bob": 10.0, "eve": 10.0, "mallory": 0.0}


def gradebook(course: Path) -> dict[str, float]:
    """What nbgrader has."""
    from nbgrader.api import Gradebook

    with Gradebook(f"sqlite:///{course / 'gradebook.db'}") as book:
        return {submission.student.id: submission.score for submission in book.assignment_submissions(CHAPTER)}


def test_a_run_that_is_killed_goes_on_where_it_was(course: Path, tmp_path: Path) -> None:
    """And a worker that is killed costs nobody anything."""
    folder, names = tmp_path / "class", [f"student {number}" for number in range(6)]
    hand_in(folder, names[:3])
    hand_in(folder, names[3:], free=BROKEN)
    command = [sys.executable, "-m", "refimpl", "grade", str(folder), "--course", str(course), "--workers", "2"]
    kept = course / "marks"
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as first:
        wait_until(lambda: any(kept.rglob("*.json")))
        first.kill()
    done = {path: path.stat().st_mtime_ns for path in kept.rglob("*.json")}
    assert 0 < len(done) < len(names)
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as second:
        wait_until(lambda: len(list(kept.rglob("*.json"))) > len(done))
        for worker in psutil.Process(second.pid).children():
            if any("spawn_main" in word for word in worker.cmdline()):
                worker.kill()
                break
        else:
            pytest.fail("no worker to kill")
        _, said = second.communicate(timeout=300)
        assert second.returncode == 0, said
    assert f"{len(names) - len(done)} marked now" in said
    assert {path: path.stat().st_mtime_ns for path in done} == done, "nothing is marked twice"
    assert totals(course) == gradebook(course) == {name: 10.0 if name in names[:3] else 6.0 for name in names}


def wait_until(condition: Callable[[], bool], seconds: float = 120) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"not so after {seconds} s"
        time.sleep(0.05)


def test_the_workers_may_be_somebody_elses(
    course: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "class"
    hand_in(folder, ["bob"])
    with cluster(None, 1) as client:
        address = client.scheduler.address
        assert grade(course, folder, "--scheduler", address, "--no-gradebook") == 0
        assert totals(course) == {"bob": 10.0}
        client.run(has_other_checks)
        assert grade(course, folder, "--scheduler", address, "--no-gradebook", "--again") == 2
        assert "1 of 1 workers have another version of refimpl" in capsys.readouterr().err


def has_other_checks() -> None:
    """On a worker."""
    from refimpl.grade import marks

    setattr(marks, "package", lambda: "other")  # noqa: B010


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--workers", "0"], "0 workers cannot mark anything; at least 1 is needed"),
        (["--seconds", "0"], "seconds is 0, and has to be more than 0"),
        (["--memory", "-1"], "memory is -1.04858e+06, and has to be more than 0"),
        (["--course", "/nowhere"], "/nowhere/exercises holds no exercise: name the checkout with --course"),
        (["--scheduler", "tcp://127.0.0.1:1"], "no scheduler answers at tcp://127.0.0.1:1"),
    ],
)
def test_what_cannot_be_done_is_said_and_leaves_nothing(
    flags: list[str],
    said: str,
    course: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cluster_module, "TIMEOUT", "1s")
    hand_in(tmp_path / "class", ["bob"])
    assert grade(course, tmp_path / "class", "--no-gradebook", *flags) == 2
    assert said in capsys.readouterr().err
    assert not (course / "marks").exists()


def test_a_folder_that_is_not_there_is_said(course: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert grade(course, Path("nowhere"), "--no-gradebook") == 2
    assert "grade: there is no folder nowhere" in capsys.readouterr().err


def test_marks_that_change_change_in_the_gradebook_and_one_that_was_lost_is_filled_again(
    course: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "class"
    hand_in(folder, ["bob"], free=f"import time\ntime.sleep(4)\n{HandedIn('03').cell('03-free-answer')['source']}")
    assert grade(course, folder, "--cell-seconds", "1") == 0
    assert gradebook(course) == totals(course) == {"bob": 6.0}
    assert grade(course, folder, "--cell-seconds", "60", "--again") == 0
    assert gradebook(course) == totals(course) == {"bob": 10.0}
    (course / "gradebook.db").unlink()
    assert grade(course, folder) == 0
    assert gradebook(course) == {"bob": 10.0}


def test_the_table_of_all_steps_keeps_what_another_run_marked_and_no_text_is_a_formula(
    course: Path, tmp_path: Path
) -> None:
    hand_in(tmp_path / "one", ["=1+1", "marks.csv"])
    hand_in(tmp_path / "two", ["bob"])
    assert grade(course, tmp_path / "one", "--no-gradebook") == 0
    assert grade(course, tmp_path / "two", "--no-gradebook") == 0
    assert totals(course) == {"'=1+1": 10.0, "marks.csv": 10.0, "bob": 10.0}


# What a machine without a fault does not show


FORGED = r"""
import json, os
report = {report!r}
for name in ("/proc/%d/fd/1" % os.getppid(), "/proc/1/fd/1"):
    try:
        with open(name, "w") as file:
            file.write(f"\n{report}\n")
    except OSError as error:
        pass
os.kill(os.getppid(), 9)
"""


@needs_bubblewrap
@pytest.mark.parametrize(
    "report", ['{"report": {}}', '{"report": {"steps": [], "faults": [], "notes": [], "path": ""}}']
)
def test_a_cell_cannot_write_the_report(report: str, tmp_path: Path) -> None:
    hand_in(tmp_path, ["bob"], free=FORGED.replace("{report!r}", repr(report)))
    (submission,) = submissions([tmp_path], [CHAPTER], QUICK)
    marks = Grading(ROOT, QUICK, uses_gradebook=False, kept_in=tmp_path / "marks").marks_of(submission)
    assert marks.problem == ""
    assert [step.result.points for step in marks.report.steps] == [3.0, 0.0, 3.0]


@needs_bubblewrap
def test_a_cell_cannot_write_a_result_and_wait_for_the_end(tmp_path: Path) -> None:
    result = {"exercise_id": "03-free", "title": "", "outcome": "passed", "points": 4.0, "max_points": 4, "message": ""}
    line = json.dumps({"result": {**result, "trace": []}})
    hand_in(tmp_path, ["bob"], free=FORGED.replace("{report!r}", repr(line)) + "\nimport time\ntime.sleep(60)")
    (submission,) = submissions([tmp_path], [CHAPTER], QUICK)
    limits = Limits(seconds=8.0, cell_seconds=60.0)
    marks = Grading(ROOT, limits, uses_gradebook=False, kept_in=tmp_path / "marks").marks_of(submission)
    assert marks.problem == "the notebook had not ended after 8 seconds"
    assert [step.result.points for step in marks.report.steps] == [3.0, 0.0, 0.0]


@pytest.mark.parametrize(
    "report",
    [{}, {"steps": 3}, {"path": "", "steps": [], "faults": [], "notes": []}],
    ids=["empty", "malformed", "of no steps"],
)
def test_what_is_no_report_of_the_notebook_gives_no_marks_and_ends_nothing(report: dict[str, object]) -> None:
    found = Found(report, [{"exercise_id": "03-free"}], "", 1.0, 0, "bubblewrap")
    marks = marks_of("bob", CHAPTER, "", found, QUICK)
    assert marks.problem == "what was said of the notebook is no report of it"
    assert [step.result.points for step in marks.report.steps] == [0.0, 0.0, 0.0]


@needs_bubblewrap
def test_nothing_is_written_but_in_its_own_folder_and_not_without_end(tmp_path: Path) -> None:
    writes = """
for place in ("/", "/usr", "/dev/shm", "/tmp"):
    try:
        for number in range(40):
            with open(f"{place}/x{number}", "wb") as file:
                file.write(bytes(2**24))
    except OSError:
        continue
    raise RuntimeError(f"640 MiB were written to {place}")
"""
    answer = HandedIn("03").cell("03-free-answer")["source"]
    hand_in(tmp_path, ["bob"], free=f"{writes}\n\n{answer}")
    (submission,) = submissions([tmp_path], [CHAPTER], QUICK)
    marks = Grading(ROOT, QUICK, uses_gradebook=False, kept_in=tmp_path / "marks").marks_of(submission)
    assert (marks.report.points, marks.remarks) == (10.0, [])


def test_a_submission_that_brings_down_the_process_that_marks_it_keeps_what_it_had_earned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand_in(tmp_path, ["bob"], free="import os, signal\nos.kill(os.getppid(), signal.SIGKILL)")
    monkeypatch.setattr(walls, "bubblewrap", lambda: None)  # behind which nobody can
    (submission,) = submissions([tmp_path], [CHAPTER], QUICK)
    marks = Grading(ROOT, QUICK, uses_gradebook=False, kept_in=tmp_path / "marks").marks_of(submission)
    assert marks.remarks == ["Not marked to its end: the process that marked the notebook was brought down by it."]
    assert [step.result.points for step in marks.report.steps] == [3.0, 0.0, 0.0]
    assert "It was not checked: the process that marked" in marks.report.steps[2].result.message
    assert left_behind() == []


def test_a_notebook_that_takes_too_long_is_cut_off_and_tried_again_when_it_may_take_longer(tmp_path: Path) -> None:
    many = "import os, time\nfor _ in range(40):\n    os.fork() or time.sleep(60)\ntime.sleep(60)"
    hand_in(tmp_path, ["bob"], free=many)
    (submission,) = submissions([tmp_path], [CHAPTER], QUICK)
    short = Grading(ROOT, Limits(seconds=6.0), uses_gradebook=False, kept_in=tmp_path / "marks")
    assert short.marks_of(submission).remarks[0].startswith("Not marked to its end: the notebook had not ended after 6")
    assert short.is_done(submission)
    assert not Grading(ROOT, QUICK, uses_gradebook=False, kept_in=tmp_path / "marks").is_done(submission)
    assert left_behind() == []


@pytest.mark.parametrize(
    ("process", "said"),
    [
        ("import json; print(json.dumps({'cannot': 'no Python kernel starts'}))", "no Python kernel starts"),
        ("raise SystemExit('no space left')", "the process that marks does not start: .*no space left"),
    ],
)
def test_a_machine_that_cannot_mark_gives_no_marks(
    process: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a learner who is not to blame for it, there is nothing to keep."""
    hand_in(tmp_path, ["bob"])
    (submission,) = submissions([tmp_path], [CHAPTER], QUICK)
    monkeypatch.setattr(walls, "command", lambda folder, name, limits: ([sys.executable, "-c", process], name))
    grading = Grading(ROOT, QUICK, uses_gradebook=False, kept_in=tmp_path / "marks")
    with pytest.raises(CannotMark, match=said):
        grading.marks_of(submission)
    assert not grading.is_done(submission)


def test_a_checkout_that_is_not_installed_marks_by_its_own_checks(course: Path, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "refimpl", course / "refimpl", ignore=shutil.ignore_patterns("__pycache__"))
    chapter = course / "refimpl" / "checks" / "ch03_uncached_allocator.py"
    chapter.write_text(chapter.read_text("utf-8").replace("03-share", "03-own"), "utf-8")
    hand_in(tmp_path / "class", ["bob"])
    command = [sys.executable, "-m", "refimpl", "grade", str(tmp_path / "class"), "--no-gradebook", "--workers", "1"]
    done = subprocess.run(command, cwd=course, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert {row["step"] for row in table(course)} >= {"03-free", "03-own"}

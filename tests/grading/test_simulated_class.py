"""The planted cases and the simulated class themselves: what they hold, that they can fail, that their marks are right.

Nothing dangerous is run here: what eats memory or forks is run with bounds of one or two.
"""

from __future__ import annotations

import ast
import csv
import hashlib
import json
import random
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import simulated_class
from handed_in import ROOT, HandedIn, borrowed, chapters
from planted import ACCENTS, EATEN, EATS, FORKED, FORKS, Planted, Surroundings, answered, cases, first, full, listening
from simulated_class import Expected, Submission, compare, drawn, make_class

from refimpl.checks import CheckResult
from refimpl.checks.catalogue import chapter_steps, find
from refimpl.checks.engine import examine
from refimpl.exercise import Cell, Runner, read
from refimpl.proof import mutants, subject

NOWHERE = Surroundings(Path("/nowhere/at/all"), 1)
CASES = {case.name: case for case in cases()}
IN_THE_ISSUE = {
    "all right": ["all-right-01", "all-right-02", "all-right-03"],
    "all wrong": ["all-wrong"],
    "untouched": ["untouched-01", "untouched-03"],
    "endless loop in one answer": ["endless-loop", "endless-loop-in-the-cell", "endless-loop-below-others"],
    "endless loop that catches KeyboardInterrupt": [
        "endless-loop-that-catches",
        "endless-loop-that-catches-in-the-cell",
    ],
    "memory eater": ["memory-eater"],
    "fork bomb (bounded)": ["fork-bomb"],
    "os._exit(0)": ["os-exit", "os-exit-in-the-cell"],
    "sys.exit": ["sys-exit", "sys-exit-in-the-cell"],
    "200,000 lines of output": ["many-lines", "many-lines-in-the-cell"],
    "writes to descriptor 2 with a right answer": ["descriptor-2", "descriptor-2-in-the-cell"],
    "a warning with a right answer": ["warning", "warning-in-the-cell"],
    "deleted check cell": ["check-deleted"],
    "edited check cell": ["check-edited"],
    "duplicated check cell": ["check-duplicated"],
    "split check cell": ["check-split"],
    "moved check cell": ["check-moved-up", "check-moved-down"],
    "Markdown-turned check cell": ["check-turned-into-markdown"],
    "copied or split answer cell": ["answer-copied", "answer-split"],
    "renamed kernel": ["kernel-renamed"],
    "helper defined in a later cell": ["helper-below", "helper-below-the-cell"],
    "input()": ["input", "input-in-the-cell"],
    "rebinding check": ["check-rebound", "check-exchanged", "examine-exchanged"],
    "rebinding ValueError": ["value-error-rebound", "value-error-exchanged"],
    "rebinding len": ["len-rebound", "len-exchanged", "len-exchanged-for-a-number"],
    "from refimpl import … as the answer": ["refimpl-imported", "refimpl-subclassed", "refimpl-wrapped"],
    "a forged result object": ["result-printed", "result-with-a-repr", "result-exchanged"],
    "reading another student's folder": ["another-students-folder"],
    "opening a socket to the loopback address": ["loopback-address"],
    "a notebook that is not JSON": ["not-json", "empty-file", "cut-short", "not-a-notebook", "no-list-of-cells"],
    "a 50 MB notebook": ["fifty-megabytes"],
    "a name with spaces and accents": ["spaces-and-accents"],
}
AS_CHECKED = [  # cases that `python -m refimpl check` judges as a grader must
    "sys-exit",
    "check-split",
    "answer-split",
    "helper-below",
    "value-error-rebound",
    "len-rebound",
]


def names(content: bytes) -> dict[str, Any]:
    """What the cells of a notebook define, as far as they run; its check cells are left out."""
    cells = [
        Cell(cell["id"], "".join(cell["source"]), False, cell["metadata"].get("nbgrader", {}).get("grade", False))
        for cell in json.loads(content)["cells"]
        if cell["cell_type"] == "code"
    ]
    runner = Runner("handed_in_once", "<handed in>")
    module = runner.module()
    for _ in runner.run_in(module, cells):
        pass
    return module


def result(content: bytes, exercise_id: str) -> CheckResult:
    """What the check says of a step of a notebook, run in this process."""
    return examine(find(exercise_id), subject(find(exercise_id), names(content)))


def digest(submissions: list[Submission]) -> str:
    """Of all that a class hands in."""
    content = hashlib.sha256()
    for submission in submissions:
        content.update(str(submission.path(Path())).encode() + submission.content(NOWHERE))
    return content.hexdigest()


# The planted cases


def test_every_case_of_the_issue_is_planted_and_no_two_have_a_name() -> None:
    assert [name for found in IN_THE_ISSUE.values() for name in found if name not in CASES] == []
    assert len(CASES) == len(cases())


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_case_gives_no_step_more_than_its_points_and_speaks_of_steps_of_its_chapter(case: Planted) -> None:
    steps = chapter_steps(case.chapter)
    assert case.marks.keys() == (steps.keys() if case.marks else set())
    assert all(0 <= points <= steps[exercise_id].points for exercise_id, points in case.marks.items())
    assert case.says.keys() <= {"", *steps}
    assert case.marks or case.says, "a file that is no notebook is told so"
    for pattern in case.says.values():
        re.compile(pattern)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_case_is_a_notebook_of_its_chapter_unless_it_has_no_marks(case: Planted, tmp_path: Path) -> None:
    path = tmp_path / case.file_name
    path.write_bytes(case.content(NOWHERE))
    if case.marks:
        assert {cell.grade_id[:2] for cell in read(path) if cell.is_answer} == {case.chapter}
    else:
        with pytest.raises(ValueError, match="is not a Jupyter notebook"):
            read(path)


def test_the_large_notebook_is_large() -> None:
    assert len(CASES["fifty-megabytes"].content(NOWHERE)) > 50_000_000


def test_an_answer_that_reads_another_folder_is_right_where_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = tmp_path / "in" / "a" / "deep" / "folder"  # it looks above the folder that it runs in, too
    alone.mkdir(parents=True)
    monkeypatch.chdir(alone)
    """So its marks show whether it could; files that are no notebooks are not in its way."""
    case, around = CASES["another-students-folder"], Surroundings(tmp_path, 1)
    assert not result(case.content(around), "03-free").passed
    for name in ("all-right-03", "no-list-of-cells", "memory-eater"):
        path = tmp_path / name / "03_uncached_allocator" / case.file_name
        path.parent.mkdir(parents=True)
        path.write_bytes(CASES[name].content(around))
    assert result(case.content(around), "03-free").passed


def test_an_answer_that_calls_the_loopback_address_is_right_where_somebody_listens() -> None:
    with listening() as (port, callers):
        content = CASES["loopback-address"].content(Surroundings(Path("/nowhere"), port))
        assert result(content, "03-free").passed
        deadline = time.monotonic() + 5
        while not callers and time.monotonic() < deadline:
            time.sleep(0.01)
    assert len(callers) == 1
    assert "free" not in vars(names(content)["UncachedBlockAllocator"]), "nobody listens any more"


@pytest.mark.parametrize(
    ("greedy", "bounds"),
    [(EATS, {f"< {EATEN * 16} ": "< 1 "}), (FORKS, {f"< {FORKED}:": "< 2:", "(20)": "(0)"})],
    ids=["memory", "processes"],
)
def test_an_answer_that_takes_all_is_right_where_it_meets_no_limit(greedy: str, bounds: dict[str, str]) -> None:
    """So its marks show whether there was one."""
    for old, new in bounds.items():
        assert old in greedy
        greedy = greedy.replace(old, new)
    assert result(answered(free=first(greedy))(NOWHERE), "03-free").passed


@pytest.mark.parametrize("error", [MemoryError(), BlockingIOError()])
def test_an_answer_that_meets_a_limit_in_every_call_earns_nothing(error: Exception) -> None:
    content = answered(free=first(f"raise {type(error).__name__}"))(NOWHERE)
    assert result(content, "03-free").points == CASES["memory-eater"].marks["03-free"] == 0


def test_marks_and_sentences_are_those_of_the_check_today(tmp_path: Path) -> None:
    paths = {}
    for name in AS_CHECKED:
        paths[name] = tmp_path / name / CASES[name].file_name
        paths[name].parent.mkdir()
        paths[name].write_bytes(CASES[name].content(NOWHERE))
    command = [sys.executable, "-m", "refimpl", "check", "--json", *map(str, paths.values())]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert run.returncode == 1, run.stderr
    for name, report in zip(paths, json.loads(run.stdout), strict=True):
        expected = _expected(CASES[name])
        assert compare([expected], _rows(name, report)) == []


def _expected(case: Planted) -> Expected:
    return Submission(case.name, case.chapter, case=case).expected()


def _rows(student: str, report: dict[str, Any]) -> list[dict[str, str]]:
    """A report of `check --json` as a table of marks has it."""
    rows = [
        {
            "step": step["exercise_id"],
            "outcome": step["outcome"],
            "points": str(step["points"]),
            "max_points": str(step["max_points"]),
            "says": " ".join([*step["faults"], step["message"]]),
        }
        for step in report["steps"]
    ]
    whole = {"step": "", "outcome": "", "points": "", "max_points": "", "says": " ".join(report["faults"])}
    return [{"student": student, "chapter": "03_uncached_allocator", **row} for row in [*rows, whole]]


# Wrong answers in a notebook


def test_every_wrong_answer_is_python_in_answer_cells_of_its_step_below_the_same_decorators() -> None:
    solved_of = {number: HandedIn(number) for number in chapters()}
    for path in [path for path in mutants(ROOT) if path.parent.name[:2] in solved_of]:
        step, number = find(path.parent.name), path.parent.name[:2]
        solved, notebook = solved_of[number], HandedIn(number)
        notebook.answer_wrongly(step, path)
        changed = [(a, b) for a, b in zip(solved.cells, notebook.cells, strict=True) if a["source"] != b["source"]]
        assert changed, path
        for old, new in changed:
            assert new["metadata"]["nbgrader"]["solution"], path
            before, after = _functions(old["source"]), _functions(new["source"])
            assert all(after.get(name, decorators) == decorators for name, decorators in before.items()), path
            imports = [node for node in ast.parse(new["source"]).body if isinstance(node, ast.ImportFrom)]
            assert not {alias.name for node in imports for alias in node.names} & borrowed(number, path), path


def _functions(source: str) -> dict[str, list[str]]:
    nodes = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    return {node.name: [ast.unparse(decorator) for decorator in node.decorator_list] for node in nodes}


@pytest.mark.parametrize("number", chapters())
def test_a_notebook_with_a_wrong_answer_earns_what_its_subject_earns(number: str) -> None:
    """One way through cells, the other through files and `refimpl.proof`: both must say the same."""
    rng = random.Random(number)
    step = rng.choice(list(chapter_steps(number)))
    mutant = rng.choice(mutants(ROOT, step))
    submission = Submission("somebody", number, wrong=((step, mutant),))
    expected, found = submission._result(step), result(submission.content(NOWHERE), step)
    assert (found.outcome, found.points, found.misconception) == (
        expected.outcome,
        expected.points,
        expected.misconception,
    )
    assert expected.outcome == "misconception"


def test_a_step_that_builds_on_a_wrong_one_is_expected_to_fall_with_it() -> None:
    wrong = (("03-allocate", ROOT / "tests/mutants/03-allocate/owner-not-counted.py"),)
    expected = Submission("somebody", "03", wrong=wrong).expected()
    assert expected.outcomes == {"03-allocate": "misconception", "03-free": "wrong", "03-share": "passed"}
    assert (expected.marks["03-free"], expected.marks["03-share"]) == (0, 3)
    assert expected.marks["03-allocate"] < 3


def test_a_step_left_open_is_as_released() -> None:
    submission = Submission("somebody", "03", left_open=("03-free",))
    assert submission.expected().outcomes["03-free"] == "not attempted"
    assert submission.expected().total == 6
    cells = {cell["id"]: cell["source"] for cell in json.loads(submission.content(NOWHERE))["cells"]}
    for name, is_solved in {"03-free-answer": False, "03-share-answer": True}.items():
        assert cells[name] == HandedIn("03", is_solved).cell(name)["source"]


# The class


def test_a_class_has_every_case_once_all_chapters_and_no_two_names() -> None:
    submissions = drawn()
    assert len(submissions) == 200
    assert Counter(s.case.name for s in submissions if s.case) == Counter(dict.fromkeys(CASES, 1))
    others = Counter(submission.chapter for submission in submissions if submission.case is None)
    assert others.keys() == chapters().keys()
    assert max(others.values()) - min(others.values()) <= 1
    assert len({submission.student.casefold() for submission in submissions}) == 200
    assert any(not submission.student.isascii() for submission in submissions)


def test_every_kind_of_submission_is_drawn() -> None:
    submissions = [submission for submission in drawn() if submission.case is None]
    kinds = {(bool(submission.left_open), bool(submission.wrong)) for submission in submissions}
    assert kinds == {(False, False), (True, False), (False, True), (True, True)}
    assert any(set(submission.left_open) == chapter_steps(submission.chapter).keys() for submission in submissions)


def test_a_wrong_answer_that_stands_on_another_step_is_the_only_fault_of_its_notebook() -> None:
    alone = [s for seed in range(5) for s in drawn(seed=seed) if any(borrowed(s.chapter, path) for _, path in s.wrong)]
    assert alone
    assert all(len(submission.wrong) == 1 and not submission.left_open for submission in alone)


def test_the_same_seed_gives_the_same_files_and_another_seed_others() -> None:
    small = [case for case in cases() if case.name != "fifty-megabytes"]
    first, again, other = (drawn(100, seed, small) for seed in (3, 3, 4))
    assert digest(first) == digest(again)
    assert digest(first) != digest(other)


@pytest.mark.parametrize(
    ("size", "said"), [(3, f"a class of 3 is too small for {len(CASES)} planted cases"), (999, "999 is too large")]
)
def test_a_class_that_cannot_be_is_refused(size: int, said: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=said):
        make_class(tmp_path / "class", size)
    assert not (tmp_path / "class").exists()


def test_a_class_is_not_written_over_another(tmp_path: Path) -> None:
    (tmp_path / "somebody").mkdir()
    with pytest.raises(ValueError, match="is not empty: a class is written into a new folder"):
        make_class(tmp_path, 2, planted=())


def test_what_is_expected_of_a_class_is_expected_of_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = (("03-share", ROOT / "tests/mutants/03-share/same-list.py"),)
    submissions = [
        Submission("Léo", "03", wrong=wrong),
        Submission("Ana", "02"),
        Submission("Zoë", "03", case=CASES["all-wrong"]),
        Submission("Noa", "03", left_open=("03-share",)),
    ]
    monkeypatch.setattr(simulated_class, "drawn", lambda *_: submissions)
    expected = make_class(tmp_path / "class", 4)
    assert [(each.student, each.total) for each in expected] == [
        ("Léo", submissions[0].expected().total),
        ("Ana", 10),
        ("Zoë", 0),
        ("Noa", 7),
    ]
    assert 7 <= expected[0].total < 10
    assert sorted(path.relative_to(tmp_path / "class").as_posix() for path in tmp_path.rglob("*.ipynb")) == [
        "Ana/02_block_table/02_block_table.ipynb",
        "Léo/03_uncached_allocator/03_uncached_allocator.ipynb",
        "Noa/03_uncached_allocator/03_uncached_allocator.ipynb",
        "Zoë/03_uncached_allocator/03_uncached_allocator.ipynb",
    ]


# The comparison


def table(*expected: Expected) -> list[dict[str, str]]:
    """The table of marks that is just as expected, but for what is said."""
    rows = []
    for each in expected:
        for step, points in each.marks.items():
            says, most = each.says.get(step, ""), find(step).points
            row = {"step": step, "outcome": each.outcomes.get(step, "wrong"), "points": f"{points:g}"}
            rows.append(
                {"student": each.student, "chapter": each.chapter, **row, "max_points": str(most), "says": says}
            )
        whole = {"step": "", "outcome": "", "points": "", "max_points": "", "says": each.says.get("", "")}
        rows.append({"student": each.student, "chapter": each.chapter, **whole})
    return rows


LÉO = Expected("Léo", "03", "solved", full("03", free=2.5), {"03-free": "misconception"}, {"03-free": "owner", "": "x"})
ZOË = Expected("Zoë", "03", "planted not-json", {}, {}, {"": "is not a Jupyter notebook"})


def test_a_table_as_expected_has_no_difference() -> None:
    assert compare([LÉO, ZOË], table(LÉO, ZOË)) == []


def spoil(step: str, /, **changes: str) -> Callable[[list[dict[str, str]]], object]:
    return lambda rows: next(row for row in rows if row["step"] == step).update(changes)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (spoil("03-free", points="4"), "03-free is 4 of 4 points and not 2.5 of 4: owner"),
        (spoil("03-free", max_points="3"), "03-free is 2.5 of 3 points and not 2.5 of 4: owner"),
        (spoil("03-free", outcome="wrong"), "03-free is 'wrong' and not 'misconception': owner"),
        (spoil("03-free", says="well done"), "03-free does not say 'owner', but 'well done'"),
        (spoil("", says=""), "the notebook does not say 'x', but ''"),
        (spoil("03-share", step="03-merge"), "03-merge has points, and nothing of this name was handed in"),
        (lambda rows: rows.append(rows[0]), "03-allocate has 2 rows and not one"),
        (lambda rows: rows.pop(0), "03-allocate has 0 rows and not one"),
        (lambda rows: rows.clear(), "is not in the table"),
    ],
)
def test_a_difference_is_a_line(change: Callable[[list[dict[str, str]]], object], said: str) -> None:
    rows = table(LÉO)
    change(rows)
    assert f"Léo, chapter 03 (solved): {said}" in compare([LÉO], rows)


def test_points_for_a_file_that_is_no_notebook_and_somebody_who_is_not_in_the_class_are_differences() -> None:
    rows = table(LÉO, ZOË)
    rows[-1]["points"] = "3"
    rows[0] = {**rows[0], "student": "Nobody"}
    assert compare([LÉO, ZOË], rows) == [
        "Léo, chapter 03 (solved): 03-allocate has 0 rows and not one",
        "Zoë, chapter 03 (planted not-json): the notebook has points, and nothing of this name was handed in",
        "Nobody, chapter 03: nobody handed this in",
    ]


def test_the_command_line_makes_a_class_and_compares_its_marks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(simulated_class, "cases", lambda: [CASES["all-right-03"], CASES["spaces-and-accents"]])
    folder, marks = tmp_path / "class", tmp_path / "marks.csv"
    assert simulated_class.main(["make", str(folder), "--size", "2"]) == 0
    assert capsys.readouterr().out.startswith(f"2 submissions in {folder}, 20 points; what is expected is in ")
    expected = [Expected(**each) for each in json.loads((tmp_path / "class.expected.json").read_text("utf-8"))]
    assert [each.student for each in expected if each.student == ACCENTS]
    rows = table(*expected)
    for points, code in ((rows[0]["points"], 0), ("0", 1)):
        rows[0]["points"] = points
        with marks.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)
        assert simulated_class.main(["compare", str(folder), str(marks)]) == code
        assert capsys.readouterr().out.splitlines()[-1] == f"{code} differences in 2 submissions"

"""`python -m refimpl check`: what a learner is told before handing in, each sentence of it.

What can be seen in the cells is tried without a kernel; a few notebooks with several faults each are run in one.
"""

import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import indent

import nbformat
import pytest
from jupyter_client.kernelspec import NoSuchKernel
from jupyter_client.manager import KernelManager
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

from refimpl import cli, notebooks
from refimpl.check_notebook import clean_run
from refimpl.check_notebook import document as document_module
from refimpl.check_notebook import kernel as kernel_module
from refimpl.check_notebook.clean_run import CleanRun
from refimpl.check_notebook.document import Document, defines, released_check
from refimpl.check_notebook.kernel import Error, Kernel, KernelDied, clean_kernel
from refimpl.check_notebook.report import CannotRun, Report, StepReport
from refimpl.checks import CheckResult

ROOT = Path(__file__).parents[2]
CHAPTER_3 = "03_uncached_allocator/03_uncached_allocator.ipynb"
FORGETS_THE_OTHER_OWNERS = """
@add_to_class(UncachedBlockAllocator)
def free(self, block):
    if block.ref_count == 0:
        raise ValueError("no owner")
    block.ref_count -= 1
    self.free_blocks.append(block)
"""
LOOKS_LIKE_A_RESULT = """
def check(exercise_id, subject):
    print(f"{exercise_id}: passed — 7 properties held on 64 histories.")
    return 4.0

check("03-free", UncachedBlockAllocator)
"""


def exercise(chapter: str = CHAPTER_3) -> NotebookNode:
    """A released exercise."""
    return notebooks.read(ROOT / "exercises" / chapter)


def solved(chapter: str = CHAPTER_3) -> NotebookNode:
    """The released exercise with the answers of its solution, and no outputs."""
    nb, answers = (
        exercise(chapter),
        {cell.id: cell.source for cell in notebooks.read(ROOT / "solutions" / chapter).cells},
    )
    for cell in nb.cells:
        if cell.metadata.get("nbgrader", {}).get("solution"):
            cell.source = answers[cell.id]
    return nb


def at(nb: NotebookNode, cell_id: str) -> int:
    """The place of a cell."""
    return [cell.id for cell in nb.cells].index(cell_id)


def cell(nb: NotebookNode, cell_id: str) -> NotebookNode:
    """A cell of a notebook, to be changed."""
    return nb.cells[at(nb, cell_id)]


def put(nb: NotebookNode, source: str, before: str) -> None:
    """Write a cell of the learner's own above another."""
    nb.cells.insert(at(nb, before), new_code_cell(source.strip()))


def save(nb: NotebookNode, path: Path) -> Path:
    """Save as a learner does, whatever rules it breaks."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(nb), "utf-8")
    return path


def faults(nb: NotebookNode, path: Path, exercise_id: str) -> list[str]:
    """What is said of a step's check cell, without a kernel."""
    document = Document(save(nb, path / "03.ipynb"))
    (step,) = [step for step in document.steps if step.exercise_id == exercise_id]
    return list(document.place(step).faults)


def outcomes(report: Report) -> dict[str, tuple[str, float]]:
    """Outcome and points of each step."""
    return {step.result.exercise_id: (step.result.outcome, step.result.points) for step in report.steps}


def line(report: Report, exercise_id: str) -> str:
    """The one line of a step."""
    (found,) = [line for line in report.lines() if line.startswith(f"  {exercise_id} ")]
    return found


# In the cells


@pytest.mark.parametrize("path", sorted((ROOT / "exercises").glob("*/*.ipynb")), ids=lambda path: path.stem)
def test_a_released_notebook_has_no_fault(path: Path) -> None:
    document = Document(path)
    assert [document.place(step).faults for step in document.steps] == [()] * len(document.steps)
    assert list(document.copies()) == []
    assert document.strangers() == []
    for step in document.steps:
        index = document.place(step).cell
        assert index is not None
        assert document.cells[index].source == released_check(step)


@pytest.mark.parametrize("path", sorted((ROOT / "exercises").glob("*/*.ipynb")), ids=lambda path: path.stem)
def test_every_check_that_is_moved_to_the_top_is_noticed(path: Path, tmp_path: Path) -> None:
    for number, step in enumerate(Document(path).steps):
        nb = notebooks.read(path)
        (index,) = [
            i for i, c in enumerate(nb.cells) if c.metadata.get("nbgrader", {}).get("grade_id") == step.exercise_id
        ]
        nb.cells.insert(0, nb.cells.pop(index))
        document = Document(save(nb, tmp_path / f"{number}.ipynb"))
        found = document.place(document.steps[number]).faults
        assert found, step.exercise_id
        assert all(
            text.startswith("Its check stands above the answer that it checks: move it below cell [") for text in found
        )


def test_a_check_below_a_first_try_and_above_a_second_is_where_it_belongs(tmp_path: Path) -> None:
    nb = solved()
    put(nb, cell(nb, "03-free-answer").source, before="03-share-task")
    assert faults(nb, tmp_path, "03-free") == []


def test_a_helper_of_another_class_is_no_answer(tmp_path: Path) -> None:
    nb = solved()
    put(nb, "@add_to_class(Pool)\ndef free(self): pass", before="given-imports")
    nb.cells.insert(2, nb.cells.pop(at(nb, "03-free-check")))
    assert len(faults(nb, tmp_path, "03-free")) == 1


def test_a_function_that_is_assigned_is_an_answer(tmp_path: Path) -> None:
    nb = exercise()
    cell(nb, "03-share-answer").source = "share_block_table = list.copy"
    assert faults(nb, tmp_path, "03-share") == []
    nb.cells.insert(0, nb.cells.pop(at(nb, "03-share-check")))
    assert len(faults(nb, tmp_path, "03-share")) == 1


def test_a_method_written_into_the_class_is_an_answer(tmp_path: Path) -> None:
    nb = exercise()
    cell(nb, "given-class").source += "\n\n    def free(self, block):\n        pass\n"
    nb.cells.insert(at(nb, "03-free-task"), nb.cells.pop(at(nb, "03-free-check")))
    assert faults(nb, tmp_path, "03-free") == []


def test_a_missing_check_cell_is_named_with_what_to_write(tmp_path: Path) -> None:
    """F02. Written again without the grader's mark, it is there: the grader puts its own back."""
    nb = solved()
    nb.cells.pop(at(nb, "03-free-check"))
    (fault,) = faults(nb, tmp_path, "03-free")
    assert (
        fault
        == 'Its check cell is missing: write `check("03-free", UncachedBlockAllocator)` in a cell below your answer.'
    )
    put(nb, 'check("03-free", UncachedBlockAllocator)\n', before="03-share-task")
    assert faults(nb, tmp_path, "03-free") == []
    assert faults(nb, tmp_path, "03-allocate") == []


def test_a_copied_check_cell_is_named_with_both_places(tmp_path: Path) -> None:
    """F01. A learner's own call of `check`, without the mark, is no copy."""
    nb = solved()
    put(nb, 'check("03-free", UncachedBlockAllocator)', before="done")
    assert faults(nb, tmp_path, "03-free") == []
    nb.cells.insert(at(nb, "03-share-task"), cell(nb, "03-free-check"))
    (fault,) = faults(nb, tmp_path, "03-free")
    assert fault == (
        "Its check cell is there 2 times, cell [6] and cell [7], and a grader wants it once: delete the copies."
    )


def test_a_copied_or_split_answer_is_named_with_both_places(tmp_path: Path) -> None:
    nb = solved()
    assert list(Document(save(nb, tmp_path / "03.ipynb")).copies()) == []
    nb.cells.insert(at(nb, "done"), cell(nb, "03-free-answer"))
    (fault,) = Document(save(nb, tmp_path / "03.ipynb")).copies()
    assert fault.startswith("Cell [5] (`def free(self, ")
    assert ") is there 2 times, cell [5] and cell [9], as happens when a cell is copied or split" in fault


def test_a_changed_check_cell_is_named_with_what_it_was(tmp_path: Path) -> None:
    """F03. A line break at its end changes nothing."""
    nb = solved()
    cell(nb, "03-free-check").source += "\n"
    assert faults(nb, tmp_path, "03-free") == []
    cell(nb, "03-free-check").source = "assert True"
    (fault,) = faults(nb, tmp_path, "03-free")
    assert fault == (
        "Its check cell was changed, cell [6] (`assert True`): put "
        '`check("03-free", UncachedBlockAllocator)` back; that is what was checked here.'
    )


@pytest.mark.parametrize(("kind", "said"), [("markdown", "a Markdown cell"), ("raw", "a Raw cell")])
def test_a_check_that_is_text_now_is_named(kind: str, said: str, tmp_path: Path) -> None:
    nb = solved()
    cell(nb, "03-free-check").cell_type = kind
    assert faults(nb, tmp_path, "03-free") == [f"Its check cell is {said} and does not run: make it a code cell again."]


def test_a_notebook_that_lost_all_its_marks_is_known_by_its_checks(tmp_path: Path) -> None:
    nb = solved()
    for each in nb.cells:
        each.metadata.pop("nbgrader", None)
    document = Document(save(nb, tmp_path / "03.ipynb"))
    assert (document.number, [document.place(step).faults for step in document.steps]) == ("03", [()] * 3)


def test_a_notebook_without_any_check_is_known_by_its_answers(tmp_path: Path) -> None:
    nb = solved()
    nb.cells = [each for each in nb.cells if not each.metadata.get("nbgrader", {}).get("grade")]
    document = Document(save(nb, tmp_path / "03.ipynb"))
    assert document.number == "03"
    assert all("is missing" in document.place(step).faults[0] for step in document.steps)


def test_one_stray_check_of_another_chapter_does_not_make_it_that_chapter(tmp_path: Path) -> None:
    nb = solved()
    chapter_7 = exercise("07_swap/07_swap.ipynb")
    nb.cells.insert(0, cell(chapter_7, "07-swap-in-check"))
    assert Document(save(nb, tmp_path / "03.ipynb")).number == "03"


def test_a_step_of_another_version_of_the_course_is_found(tmp_path: Path) -> None:
    nb = solved()
    stranger = cell(solved(), "03-free-check")
    stranger.metadata.nbgrader.grade_id = "03-merge"
    nb.cells.append(stranger)
    assert Document(save(nb, tmp_path / "03.ipynb")).strangers() == [len(nb.cells) - 1]


def test_the_number_of_a_cell_is_that_of_run_all_and_its_line_says_which(tmp_path: Path) -> None:
    nb = solved()
    put(nb, "", before="03-free-answer")
    put(nb, "# a thought\n\n%time x = 1", before="03-free-answer")
    document = Document(save(nb, tmp_path / "03.ipynb"))
    index = at(nb, "03-free-answer")
    assert document.name(index) == "cell [6] (`def free(self, block: PhysicalTokenBlock) -> None:`)"
    assert document.name(index - 1) == "cell [5] (`# a thought`)"
    assert document.name(index - 2) == "cell [4] (empty)"


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("a = b", {"a"}),
        ("import os.path\nfrom re import match as m", {"os", "m"}),
        ("def f(x):\n    y = x", {"f"}),
        ("class C:\n    z = 1", {"C"}),
        ("for i in range(3):\n    with open('f') as g:\n        h = i", {"i", "g", "h"}),
        ("%%time\nx = 1\n!ls", {"x"}),
        ("print(q)\nq.r = 1", set()),
        ("def broken(:", set()),
    ],
)
def test_the_names_that_a_cell_defines(source: str, names: set[str]) -> None:
    assert defines(source) == names


def test_a_name_is_out_of_order_only_where_nothing_above_defines_it(tmp_path: Path) -> None:
    nb = solved()
    put(nb, "total = helper(2)", before="03-free-task")
    put(nb, "def helper(n):\n    return n", before="done")
    document = Document(save(nb, tmp_path / "03.ipynb"))
    index = at(nb, "03-free-task") - 1
    said = document.out_of_order(index, "helper")
    assert said is not None
    assert said.startswith(
        "Cell [5] (`total = helper(2)`) needs `helper`, which is only defined below it, in cell [10] (`def"
    )
    assert said.endswith("Move that cell up.")
    assert document.out_of_order(len(nb.cells) - 1, "helper") is None, "defined above"
    assert document.out_of_order(index, "nowhere") is None
    assert document.out_of_order(None, "helper") is None, "after the last cell nothing is below"
    cell(nb, "03-free-answer").source = "helper = helper(1)"
    document = Document(save(nb, tmp_path / "03.ipynb"))
    said = document.out_of_order(at(nb, "03-free-answer"), "helper")
    assert said is not None
    assert "`) needs `helper`, which is only defined below it, in cell [10] (`def helper" in said, "and not in itself"
    put(nb, "helper = abs", before="given-imports")
    assert Document(save(nb, tmp_path / "03.ipynb")).out_of_order(index + 1, "helper") is None


# What cannot be run


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda folder: folder / "gone.ipynb", "there is no file {path}"),
        (lambda folder: folder, "{path} is a folder: name the notebooks in it, such as {path}/*/*.ipynb"),
        (lambda folder: save(solved(), folder / "in/a.ipynb").parent, "{path} is a folder: name the notebooks in it"),
        (lambda folder: written(folder / "a.ipynb", "x = 1"), "{path} is not a Jupyter notebook"),
        (lambda folder: written(folder / "a.ipynb", "[]"), "{path} is not a Jupyter notebook"),
        (lambda folder: written(folder / "a.ipynb", b"\xff\xfe"), "{path} is not a Jupyter notebook"),
        (lambda folder: ROOT / "notebooks/03_uncached_allocator.ipynb", "{path} holds no exercise of the course"),
        (lambda folder: ROOT / "notebooks/00_start_here.ipynb", "{path} holds no exercise of the course"),
    ],
)  # fmt: skip
def test_what_is_no_exercise_is_refused_in_one_sentence_and_nothing_is_run(
    make: Callable[[Path], Path],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """F11. Also beside a notebook that could be run."""
    monkeypatch.setattr(clean_run, "clean_kernel", None)
    good = save(solved(), tmp_path / "good" / "03.ipynb")
    path = make(tmp_path)
    assert cli.main(["check", str(good), str(path), "--json"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    assert line.startswith("check: " + said.format(path=path))


def written(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_a_file_that_cannot_be_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def denied(path: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(document_module, "read_all", denied)
    assert cli.main(["check", "a.ipynb"]) == 2
    assert capsys.readouterr().err == "check: a.ipynb cannot be read: Permission denied\n"


def test_without_jupyter_or_its_kernel_nothing_can_be_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = save(solved(), tmp_path / "03.ipynb")

    def no_kernel(self: KernelManager, **_: object) -> None:
        raise NoSuchKernel("python3")

    with monkeypatch.context() as patch:
        patch.setattr(KernelManager, "start_kernel", no_kernel)
        assert cli.main(["check", str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(
        r"check: .*03\.ipynb: no Python kernel starts: .*python3.*`pip install ipykernel` brings one\n", err
    )
    monkeypatch.setitem(sys.modules, "jupyter_client.manager", None)
    assert cli.main(["check", str(path)]) == 2
    assert "it comes with `pip install refimpl[lab]`" in capsys.readouterr().err


def test_a_kernel_that_lacks_the_package_cannot_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_module.ready, "__module__", "not_installed_there")
    with (
        pytest.raises(
            CannotRun, match="cannot check anything: ModuleNotFoundError: No module named 'not_installed_there'"
        ),
        clean_kernel(tmp_path, "03"),
    ):
        pass


# In a kernel


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    with clean_kernel(tmp_path_factory.mktemp("folder"), "03") as kernel:
        yield kernel


def test_an_error_comes_with_the_learners_own_line(kernel: Kernel) -> None:
    assert kernel.run("def half(n):\n    return n / 0\n\nx = 1", 30) is None
    error = kernel.run("import json\nhalf(3)", 30)
    assert error == Error("ZeroDivisionError", "ZeroDivisionError: division by zero", "return n / 0", None)
    error = kernel.run("json.loads('{')", 30)
    assert error is not None
    assert error.line == "json.loads('{')", "not a line of the library"
    assert kernel.run("if True\n  pass", 30) == Error("SyntaxError", "SyntaxError: expected ':'", "if True", None)
    error = kernel.run("nobody", 30)
    assert error is not None
    assert (error.kind, error.name) == ("NameError", "nobody")


def test_a_cell_that_ends_the_kernel_is_told_from_one_that_cannot_be_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_module, "PATIENCE", 1.0)
    deaf = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"
    for source, said in [
        ("exit()", "it calls `exit` or `quit`"),
        ("import os; os._exit(1)", "it left Python, crashed it, or took more memory than there is"),
        (deaf, r"had not ended after 0\.5 seconds and could not be interrupted"),
    ]:
        with clean_kernel(tmp_path, "03") as kernel, pytest.raises(KernelDied, match=said):
            kernel.run(source, 0.5 if source == deaf else 30)


def test_a_right_notebook_is_good_whatever_it_is_called_and_wherever_it_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """F07 and F19. The kernel is clean, works in the notebook's folder, and leaves the folder as it is."""
    startup = tmp_path / "ipython" / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup / "mine.py").write_text("from_my_startup_file = 1")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    nb = solved()
    put(
        nb,
        "from pathlib import Path\nassert 'from_my_startup_file' not in globals()\n"
        "assert Path.cwd().name == 'der Übungen größter Teil', Path.cwd()\nassert Path('notes.txt').exists()",
        before="03-allocate-task",
    )
    put(nb, "for line in range(200_000):\n    print(line)", before="03-allocate-task")
    nb.metadata.kernelspec = {"name": "my-vllm-env", "display_name": "mine", "language": "python"}
    nb.nbformat_minor = 4
    for each in nb.cells:
        del each["id"]
    folder = tmp_path / "der Übungen größter Teil"
    path = save(nb, folder / "exercice 3-Copié (1).ipynb")
    nbformat.validate(nbformat.read(path, as_version=4))
    (folder / "notes.txt").touch()
    before = path.read_bytes(), path.stat().st_mtime_ns
    folder.chmod(0o555)
    try:
        code = cli.main(["check", str(path)])
    finally:
        folder.chmod(0o755)
    out, err = capsys.readouterr()
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == str(path)
    assert [line.split()[:5] for line in lines[1:4]] == [
        ["03-allocate", "passed", "3", "of", "3"],
        ["03-free", "passed", "4", "of", "4"],
        ["03-share", "passed", "3", "of", "3"],
    ]
    assert lines[4:] == ["  total: 10 of 10 points, 3 of 3 steps passed"]
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    assert sorted(os.listdir(folder)) == ["exercice 3-Copié (1).ipynb", "notes.txt"]


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """One notebook with many faults, run once."""
    nb = solved()
    put(nb, "print(helper(2))", before="03-allocate-task")
    put(nb, "def half(n):\n    return n / 0\n\nhalf(4)", before="03-allocate-task")
    put(nb, "int('a second error')", before="03-allocate-task")
    put(nb, "def helper(n):\n    return n", before="03-allocate-task")
    cell(nb, "03-allocate-check").source = "assert True"
    cell(nb, "03-free-answer").source = FORGETS_THE_OTHER_OWNERS
    put(nb, LOOKS_LIKE_A_RESULT, before="03-free-check")
    nb.cells.insert(at(nb, "03-free-check"), cell(nb, "03-free-check"))
    nb.cells.pop(at(nb, "03-share-check"))
    stranger = cell(solved(), "03-free-check")
    stranger.metadata.nbgrader.grade_id = "03-merge"
    stranger.source = 'check("03-merge", UncachedBlockAllocator)'
    nb.cells.append(stranger)
    return CleanRun(Document(save(nb, tmp_path_factory.mktemp("faulty") / "03.ipynb")), 30).report()


def test_what_a_cell_prints_or_calls_check_is_not_believed(faulty: Report) -> None:
    assert outcomes(faulty)["03-free"][0] == "misconception"
    assert outcomes(faulty)["03-free"][1] < 4
    assert "last owner" in line(faulty, "03-free")


def test_a_step_says_in_its_line_what_is_wrong_with_its_check_and_what_the_released_one_says(faulty: Report) -> None:
    assert re.search(
        r"03-allocate +passed +3 of 3   Its check cell was changed, .* 7 properties held", line(faulty, "03-allocate")
    )
    assert re.search(r"03-free .* Its check cell is there 2 times, ", line(faulty, "03-free"))
    assert re.search(
        r"03-share +passed +3 of 3   Its check cell is missing: .* 5 properties held", line(faulty, "03-share")
    )
    assert not faulty.is_good


def test_only_the_first_error_is_told_and_the_cell_that_came_too_late(faulty: Report) -> None:
    order, error = faulty.faults
    assert order.startswith(
        "Cell [3] (`print(helper(2))`) needs `helper`, which is only defined below it, in cell [6] (`def helper"
    )
    assert error == (
        "Cell [4] (`def half(n):`) raised ZeroDivisionError: division by zero, at its line `return n / 0`. Mend it or "
        "delete it."
    )
    assert [line for line in faulty.lines() if "second error" in line or "Traceback" in line] == []


def test_a_step_that_this_version_does_not_know_is_noted_and_not_run(faulty: Report) -> None:
    assert faulty.notes == ("03-merge is no step of chapter 03 that is known here; it was left out.",)


def test_the_same_as_json(faulty: Report) -> None:
    found = json.loads(json.dumps(faulty.as_json()))
    assert (found["good"], found["max_points"], found["points"]) == (False, 10, faulty.points)
    assert [step["exercise_id"] for step in found["steps"]] == ["03-allocate", "03-free", "03-share"]
    assert found["steps"][1]["misconception"] == "freed-while-shared"
    assert found["steps"][1]["trace"]
    assert [len(step["faults"]) for step in found["steps"]] == [1, 1, 1]
    assert found["faults"] == list(faulty.faults)


@pytest.fixture(scope="module")
def halted(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """A loop, an answer that is no Python, a helper below its check, and a cell that takes the kernel down."""
    nb = solved()
    put(nb, "while True:\n    pass\ncounted = 1", before="03-allocate-task")
    put(nb, "print(counted)", before="03-allocate-task")
    put(nb, "broken = input('how many? ')", before="03-allocate-task")
    put(nb, "print(broken)", before="03-allocate-task")
    cell(nb, "03-allocate-answer").source = (
        "@add_to_class(UncachedBlockAllocator)\ndef allocate(self, block_hash=None, num_hashed_tokens=0):\n"
        "    return take_one(self.free_blocks)"
    )
    put(nb, "def take_one(blocks):\n    return blocks.pop()", before="03-free-task")
    cell(nb, "03-free-answer").source = "def free(self, block:\n    pass"
    put(nb, "import os\nos._exit(1)", before="03-share-task")
    return CleanRun(Document(save(nb, tmp_path_factory.mktemp("halted") / "03.ipynb")), 1.5).report()


def test_an_endless_loop_is_stopped_and_named_and_the_rest_is_run(halted: Report) -> None:
    """F04."""
    assert [fault for fault in halted.faults if "loop" in fault] == [
        "Cell [3] (`while True:`) had not ended after 1.5 seconds and was stopped: look for a loop that never ends."
    ]
    assert outcomes(halted)["03-allocate"][0] == "raised", "it was checked"


def test_a_cell_that_asks_a_question_is_told_that_nobody_answers(halted: Report) -> None:
    """F10. What follows from a cell that did not end, a name that it would have defined, is not told."""
    (told,) = [fault for fault in halted.faults if "input" in fault]
    assert told.startswith("Cell [5] (`broken = input('how many? ')`) raised StdinNotImplementedError")
    assert told.endswith("Nobody answers `input()` when a notebook is graded: write the value into the cell.")
    assert [fault for fault in halted.faults if "print(" in fault] == []


def test_a_check_that_needs_a_name_from_below_says_so(halted: Report) -> None:
    said = line(halted, "03-allocate")
    assert "NameError: name 'take_one' is not defined" in said
    assert "needs `take_one`, which is only defined below it, in cell [9] (`def take_one(blocks):`)" in said


def test_an_answer_that_does_not_run_is_what_its_step_says(halted: Report) -> None:
    assert outcomes(halted)["03-free"] == ("raised", 0.0)
    assert re.search(
        r"Cell \[10\] \(`def free\(self, block:`\), your answer, raised SyntaxError: ", line(halted, "03-free")
    )


def test_the_cell_that_ended_the_kernel_is_named_and_what_follows_is_checked_without_it(halted: Report) -> None:
    assert halted.faults[-1] == (
        "Cell [12] (`import os`) ended the kernel: it left Python, crashed it, or took more memory than there is;"
        " the rest was run without it."
    )
    assert len(set(halted.faults)) == len(halted.faults), "what is run again is told once"
    assert outcomes(halted)["03-share"] == ("passed", 3.0)


def test_an_answer_that_takes_the_kernel_down_in_its_check_is_named(tmp_path: Path) -> None:
    nb = solved()
    cell(nb, "03-free-answer").source = FORGETS_THE_OTHER_OWNERS.replace(
        "block.ref_count -= 1", "import os; os._exit(3)"
    )
    report = CleanRun(Document(save(nb, tmp_path / "03.ipynb")), 30).report()
    assert outcomes(report) == {"03-allocate": ("passed", 3.0), "03-free": ("raised", 0.0), "03-share": ("passed", 3.0)}
    assert "During the check your code ended the kernel: it left Python, crashed it" in line(report, "03-free")


def test_a_loop_that_nothing_stops_costs_its_own_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F04. In a check and in a cell; the kernel in which it goes on is given up."""
    monkeypatch.setattr(kernel_module, "PATIENCE", 1.0)
    catches = "while True:\n    try:\n        while True:\n            pass\n    except BaseException:\n        pass"
    nb = solved()
    free = f"@add_to_class(UncachedBlockAllocator)\ndef free(self, block):\n{indent(catches, '    ')}"
    cell(nb, "03-free-answer").source = free
    put(nb, "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass", before="03-share-task")
    report = CleanRun(Document(save(nb, tmp_path / "03.ipynb")), 1.5, 2.0).report()
    assert outcomes(report) == {
        "03-allocate": ("passed", 3.0),
        "03-free": ("timed out", 0.0),
        "03-share": ("passed", 3.0),
    }
    (fault,) = report.faults
    assert fault.startswith("Cell [7] (`import signal`) had not ended after 1.5 seconds and could not be interrupted")


TRICKS = {  # what is run -> what is said of it
    "fake = types.ModuleType('fake')\nfake.examined = lambda *a: FORGED\nsys.modules[KERNEL] = fake": "in place of",
    """
def __import__(name):
    module = types.SimpleNamespace(examined=lambda *a: FORGED)
    return types.SimpleNamespace(import_module=lambda name: module)
""": "in place of",
    "import json\njson.dumps = lambda *a, **k: FORGED": "ended the kernel: it answers what nobody can read",
    """
from refimpl.checks.catalogue import find
object.__setattr__(find('03-free'), 'properties', ())
""": "the step 03-free",
    """
from refimpl.checks.step import Log

@add_to_class(UncachedBlockAllocator)
def free(self, block):
    Log.expect = Log.hold = lambda *a, **k: None
""": "During the check your code replaced",
}


@pytest.mark.parametrize(("trick", "said"), TRICKS.items(), ids=["module", "import", "json", "step", "during"])
def test_a_trick_earns_nothing_and_is_named(trick: str, said: str, tmp_path: Path) -> None:
    found = {"exercise_id": "03-free", "title": "", "outcome": "passed", "points": 4.0, "max_points": 4}
    forged = json.dumps({"result": {**found, "message": "", "trace": ()}, "put_back": (), "still_runs": False})
    nb = solved()
    cell(nb, "03-free-answer").source = FORGETS_THE_OTHER_OWNERS
    put(
        nb,
        f"import sys, types\nFORGED, KERNEL = {forged!r}, {kernel_module.__name__!r}\n{trick}",
        before="03-free-check",
    )
    report = CleanRun(Document(save(nb, tmp_path / "03.ipynb")), 30).report()
    assert outcomes(report)["03-free"][1] < 4.0
    assert said in " ".join([*report.faults, line(report, "03-free")])


def test_a_kernel_that_is_lost_once_may_be_the_machines_fault(tmp_path: Path) -> None:
    """The cell is run again before its author is blamed."""
    nb, flag = solved(), tmp_path / "was-here"
    put(
        nb,
        f"import os\nfrom pathlib import Path\nflag = Path({str(flag)!r})\n"
        "if not flag.exists():\n    flag.touch()\n    os._exit(1)",
        before="03-free-check",
    )
    report = CleanRun(Document(save(nb, tmp_path / "03.ipynb")), 30).report()
    assert (report.points, report.faults) == (10.0, ())


def test_what_cells_replace_under_the_checks_is_put_back_and_named(tmp_path: Path) -> None:
    nb = solved()
    cell(nb, "03-free-answer").source = FORGETS_THE_OTHER_OWNERS
    put(
        nb,
        "import builtins, refimpl.checks.engine as engine, refimpl.check_notebook.kernel as kernel\n"
        "from refimpl.checks.result import CheckResult\n"
        "builtins.ValueError = Exception\nengine.equal = engine._failed = lambda *a: True\n"
        "engine.examine.__code__ = (lambda step, subject, time_limit=9.0: None).__code__\n"
        "CheckResult.passed = True\nkernel.examine = None",
        before="03-free-check",
    )
    report = CleanRun(Document(save(nb, tmp_path / "03.ipynb")), 30).report()
    assert outcomes(report)["03-free"][0] == "misconception"
    replaced = " ".join(report.faults)
    for name in ("builtins.ValueError", "engine._failed", "engine.examine", "CheckResult.passed", "kernel.examine"):
        assert f"{name}`; it was put back before 03-free." in replaced


def test_several_notebooks_have_a_report_each_and_what_is_not_attempted_is_no_success(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """F17. The untouched one is worth nothing, and named; the other is right, a step of another version left out."""
    nb, stranger = solved(), cell(solved(), "03-free-check")
    stranger.metadata.nbgrader.grade_id, stranger.source = "03-merge", 'check("03-merge", merge)'
    nb.cells.append(stranger)
    right = save(nb, tmp_path / "right.ipynb")
    untouched = save(exercise(), tmp_path / "untouched.ipynb")
    assert cli.main(["check", str(right), str(untouched)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [lines[0], lines[6]] == [str(right), str(untouched)]
    assert lines[4:6] == [
        "  Note: 03-merge is no step of chapter 03 that is known here; it was left out.",
        "  total: 10 of 10 points, 3 of 3 steps passed",
    ]
    assert lines[10] == "  total: 0 of 10 points, 0 of 3 steps passed; not attempted: 03-allocate, 03-free, 03-share"
    assert lines[11] == "1 of 2 notebooks without a fault, 10 of 20 points"


def test_a_step_that_passes_is_no_success_when_its_check_cell_is_missing() -> None:
    """F02."""
    result = CheckResult("03-free", "give back", "passed", 4.0, 4, "All held.")
    assert Report("03.ipynb", (StepReport(result, ()),), (), ("a note",)).is_good
    assert not Report("03.ipynb", (StepReport(result, ("Its check cell is missing.",)),), (), ()).is_good
    assert not Report("03.ipynb", (StepReport(result, ()),), ("Cell [3] raised.",), ()).is_good


def test_json_is_one_list_of_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And a learner's own step of a chapter in which an import is missing says which."""
    nb = solved()
    put(nb, "import a_module_of_another_machine.parts", before="given-imports")
    path = save(nb, tmp_path / "03.ipynb")
    assert cli.main(["check", "--json", str(path)]) == 1
    (report,) = json.loads(capsys.readouterr().out)
    assert (report["path"], report["points"], report["good"]) == (str(path), 10.0, False)
    (fault,) = report["faults"]
    assert "This needs a_module_of_another_machine, which is not installed here" in fault


def test_a_name_that_no_cell_defines_any_more_is_named(tmp_path: Path) -> None:
    nb = solved()
    nb.cells.pop(at(nb, "given-class"))
    report = CleanRun(Document(save(nb, tmp_path / "03.ipynb")), 30).report()
    (fault,) = report.faults
    assert "raised NameError: name 'UncachedBlockAllocator' is not defined" in fault
    assert fault.endswith(
        "No cell defines `UncachedBlockAllocator` any more: it was in one that is gone, or has another name now."
    )
    assert outcomes(report)["03-share"] == ("passed", 3.0)

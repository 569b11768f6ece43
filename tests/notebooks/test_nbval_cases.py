"""What strict nbval does with the cells that have fooled others (E01 to E20), and that our ways avoid it.

Most cases are cells of one notebook, `cases.ipynb`: it is executed once and then validated once, as in CI.
"""

import re
from importlib.metadata import version
from pathlib import Path

import pytest
import repeat_nbval
import rules
from builders import code, notebook, printed
from nbformat import NotebookNode

from refimpl import notebooks

ROOT = Path(__file__).parents[2]

SHOW = "def show(blocks):\n    print(blocks, 'blocks')\nfrom ipywidgets import interact"
CASES = {  # id of the cell -> its source
    "E02-semicolon": "1 + 1;",
    "E02-underscore": "_ = 1 + 1",
    "E07-text-bar": "from tqdm import tqdm\nfor _ in tqdm(range(3)):\n    import time\n    time.sleep(0.02)",
    "E07-disabled-bar": "for _ in tqdm(range(3), disable=True):\n    pass",
    "E08-setup": SHOW,
    "E08-interact": "interact(show, blocks=(1, 4))",
    "E08-interact-ignored": "interact(show, blocks=(1, 4))",
    "E08-plain-call": "show(2)",
    "E09-address": "object()",
    "E09-what-matters": "print(type(object()).__name__)",
    "E12-warning": "import warnings\nwarnings.warn('blocks are low')",
    "E12-caught": (
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always')\n"
        "    warnings.warn('blocks are low')\n"
        "print(caught[0].message)"
    ),
    "E16-time": "%%time\nsum(range(1000))",
    "E16-compared": "import time\nstart = time.perf_counter()\nprint(time.perf_counter() - start < 5)",
    "E20-hash": "print(hash('block'))",
    "E20-compared": "print(hash('block') == hash('block'))",
    "E20-set": "print({'gpu', 'cpu', 'disk', 'waiting', 'running', 'swapped'})",
    "E20-sorted": "print(sorted({'gpu', 'cpu', 'disk'}))",
    "E03-never-run": "print('shown now, never stored')",
}


def cases() -> NotebookNode:
    cells = [code(source, cell_id) for cell_id, source in CASES.items()]
    nb = notebook(*cells)
    next(cell for cell in nb.cells if cell.id == "E08-interact-ignored").metadata["tags"] = [rules.IGNORED]
    return nb


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> NotebookNode:
    """The cases as a clean run stores them, but for the last one, which pretends that it never ran."""
    nb = notebooks.run(cases(), tmp_path_factory.mktemp("run"))
    nb.cells[-1].update(execution_count=None, outputs=[])
    return nb


@pytest.fixture(scope="module")
def verdicts(executed: NotebookNode, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What strict nbval says of each case, by the id of its cell; E11 is a notebook of its own."""
    folder = tmp_path_factory.mktemp("nbval")
    notebooks.write(executed, folder / "cases.ipynb")
    elsewhere = notebooks.dumps(notebook(code("print(1)", "one", printed("1\n"))))
    (folder / "elsewhere.ipynb").write_text(elsewhere.replace('"name": "python3"', '"name": "vllm-course"'))
    found, said = repeat_nbval.nbval([folder], seed="1")
    by_place = {name.split("::")[-1]: verdict for name, verdict in found.items() if "cases" in name}
    assert len(by_place) == len(CASES), said
    named = {cell_id: by_place[f"Cell {place}"] for place, cell_id in enumerate(CASES)}
    return {**named, "E11-other-kernel": next(found[name] for name in found if "elsewhere" in name)}


FAILS = [
    "E02-semicolon",
    "E07-text-bar",
    "E08-interact",
    "E09-address",
    "E12-warning",
    "E16-time",
    "E20-hash",
    "E20-set",
]
PASSES = sorted(CASES.keys() - set(FAILS))


@pytest.mark.parametrize("cell_id", FAILS)
def test_nbval_fails_the_cell_that_would_be_flaky(verdicts: dict[str, str], cell_id: str) -> None:
    assert verdicts[cell_id] == "failed"


@pytest.mark.parametrize("cell_id", PASSES)
def test_nbval_passes_the_way_we_do_it(verdicts: dict[str, str], cell_id: str) -> None:
    """`E03-never-run` is here as well: nbval passes it whatever it prints."""
    assert verdicts[cell_id] == "passed"


def test_E11_a_kernel_of_the_authors_machine_is_an_error(verdicts: dict[str, str]) -> None:
    assert verdicts["E11-other-kernel"] == "error"


@pytest.mark.parametrize("cell_id", [cell_id for cell_id in [*FAILS, "E03-never-run"] if cell_id != "E20-set"])
def test_our_rules_see_it_before_nbval_runs(executed: NotebookNode, cell_id: str) -> None:
    """Reading is enough to find these; of `E20-set` only the run under two hash seeds can tell."""
    of_outputs = (rules.no_trailing_semicolon, *rules.OF_STORED_OUTPUTS)
    found = [sentence for rule in of_outputs for sentence in rule(executed, Path("cases.ipynb"))]
    assert [sentence for sentence in found if f"({cell_id})" in sentence]


def test_our_rules_pass_a_widget_as_a_clean_run_stores_it(executed: NotebookNode) -> None:
    """E08: tagged, its function called in a plain cell, and nothing else printed."""
    found = [sentence for rule in rules.OF_STORED_OUTPUTS for sentence in rule(executed, Path("cases.ipynb"))]
    assert [sentence for sentence in found if "(E08-interact-ignored)" in sentence or "(E08-plain" in sentence] == []


def test_E01_nbval_and_pytest_are_pinned_to_a_pair_that_works() -> None:
    """nbval 0.10 stops every run under pytest 8.1 and later."""
    assert tuple(map(int, version("nbval").split(".")[:2])) >= (0, 11)
    lock = (ROOT / "requirements-dev.txt").read_text()
    assert re.search(r"^nbval==0\.(1[1-9]|[2-9]\d)", lock, re.MULTILINE)
    assert re.search(r"^pytest==\d", lock, re.MULTILINE)


def test_E05_an_endless_loop_ends_within_its_limit(tmp_path: Path) -> None:
    """E19, too: our settings serve a folder that holds notebooks and Python tests."""
    (tmp_path / "test_plain.py").write_text("def test_plain():\n    assert True\n")
    nb = notebook(
        code("print(1)", "one", printed("1\n")),
        code("while True:\n    pass", "endless"),
        code("print(2)", "two", printed("2\n")),
    )
    notebooks.write(nb, tmp_path / "endless.ipynb")
    found, said = repeat_nbval.nbval([tmp_path], options=["--nbval-cell-timeout=3"])
    assert [verdict for name, verdict in found.items() if "Cell 1" in name] == ["failed"], said
    assert [verdict for name, verdict in found.items() if "Cell 0" in name] == ["passed"], said
    assert [verdict for name, verdict in found.items() if "test_plain" in name] == ["passed"], said
    assert "Timeout of 3 seconds exceeded" in said


def test_E13_the_cells_of_a_notebook_are_never_spread_over_processes(tmp_path: Path) -> None:
    """Each of pytest-xdist's workers would run some of the cells and miss the names of the others: nbval has none."""
    notebooks.write(notebook(code("print(1)", "one", printed("1\n"))), tmp_path / "one.ipynb")
    found, said = repeat_nbval.nbval([tmp_path], options=["-n", "2"])
    assert found == {}
    assert "unrecognized arguments: -n" in said
    assert not re.search(r"addopts.*(-n\b|numprocesses)", (ROOT / "pyproject.toml").read_text())


def test_E17_a_cell_that_is_slow_to_answer_is_reported(tmp_path: Path) -> None:
    """nbval waits 5 s for outputs once a cell has ended; a budget far below keeps slow machines safe."""
    report = tmp_path / "report.xml"
    report.write_text(
        "<testsuite><testcase classname='a' name='Cell 0' time='19.9'/>"
        "<testcase classname='a' name='Cell 1' time='20.1'/></testsuite>"
    )
    found = repeat_nbval.read_report(report)
    assert found == {"a::Cell 0": "passed", "a::Cell 1": "slow"}
    assert repeat_nbval.disagreements({"run 1": found}) == ["a::Cell 1: slow in run 1"]


def test_E19_our_settings_work_for_a_folder_without_notebooks(tmp_path: Path) -> None:
    (tmp_path / "test_plain.py").write_text("def test_plain():\n    assert True\n")
    found, said = repeat_nbval.nbval([tmp_path])
    assert list(found.values()) == ["passed"], said


def test_a_file_that_is_no_notebook_stops_the_run(tmp_path: Path) -> None:
    (tmp_path / "broken.ipynb").write_text("{}")
    found, said = repeat_nbval.nbval([tmp_path])
    assert found == {}
    assert "broken.ipynb" in said


def test_E20_runs_that_differ_are_told_from_runs_that_agree() -> None:
    good, bad = {"a::Cell 0": "passed"}, {"a::Cell 0": "failed"}
    assert repeat_nbval.disagreements({"run 1": good, "run 2": dict(good)}) == []
    assert repeat_nbval.disagreements({"run 1": good, "run 2": bad}) == ["a::Cell 0: passed in run 1, failed in run 2"]
    assert repeat_nbval.disagreements({"run 1": good, "run 2": {}}) == ["a::Cell 0: passed in run 1, absent in run 2"]
    assert repeat_nbval.disagreements({"run 1": bad, "run 2": bad}) != [], "a cell that always fails is no agreement"


@pytest.mark.parametrize(
    ("verdicts", "exit_code", "words"),
    [
        (["passed"] * 3, 0, "6 runs agree: every cell passed."),
        (["passed", "passed", "failed"], 1, "passed in run 2 under seed 4242, failed in run 3 under seed 4242"),
        (["passed", "passed", None], 2, "nbval could not run."),
    ],
)
def test_E20_the_script_runs_three_times_under_each_of_two_seeds(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    verdicts: list[str | None],
    exit_code: int,
    words: str,
) -> None:
    """A run that collects no cell is no success; `verdicts` are those of the second seed."""
    left = {"0": ["passed"] * 3, "4242": verdicts.copy()}

    def nbval(paths: list[Path], seed: str, options: list[str]) -> tuple[dict[str, str], str]:
        verdict = left[seed].pop(0)
        return ({"a::Cell 0": verdict} if verdict else {}), "what pytest printed"

    monkeypatch.setattr(repeat_nbval, "nbval", nbval)
    assert repeat_nbval.main([]) == exit_code
    assert left == {"0": [], "4242": []}
    captured = capsys.readouterr()
    assert words in captured.out + captured.err

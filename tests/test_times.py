"""The table of where the time went counts every test once, of one worker or two, of one run or several."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import times

pytest_plugins = ["pytester"]

CORE = """
import time
import pytest

def test_slow():
    time.sleep(0.3)

def test_fails():
    assert False

@pytest.fixture
def broken():
    raise ValueError

def test_cannot_begin(broken):
    pass

@pytest.mark.skip(reason="of no machine")
def test_not_here():
    pass
"""
VIZ = """
import pytest

@pytest.fixture
def lasting():
    yield
    raise ValueError

def test_does_not_end_well(lasting):
    pass
"""
TOP = "def test_quick():\n    pass\n"


def rows(text: str) -> dict[str, tuple[int, ...]]:
    """Part -> tests, passed, skipped, failed, by the last table of a run's output."""
    last = text.rpartition("where the time went")[2]
    return {name: tuple(map(int, counts.split())) for name, counts in re.findall(r"^(\w+)((?: +\d+){4}) ", last, re.M)}


def run(pytester: pytest.Pytester, *arguments: str) -> str:
    return pytester.runpytest("-p", "tests.times", "--times", "kept/times", *arguments).stdout.str()


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setenv("PYTHONPATH", str(Path(times.__file__).parents[1]))  # for xdist's workers
    pytester.makepyfile(**{"tests/core/test_block": CORE, "tests/viz/test_draw": VIZ, "tests/test_top": TOP})
    return pytester


@pytest.mark.parametrize("workers", [(), ("-n", "2", "--dist", "loadfile")], ids=["one process", "two workers"])
def test_every_test_is_counted_once_in_its_part(suite: pytest.Pytester, workers: tuple[str, ...]) -> None:
    shown = run(suite, *workers)
    assert rows(shown) == {"core": (4, 1, 1, 2), "viz": (1, 0, 0, 1), "tests": (1, 1, 0, 0), "all": (6, 2, 1, 3)}
    assert re.search(r"^slowest\n +0\.[3-9]  tests/core/test_block\.py::test_slow$", shown, re.M)


def test_runs_one_after_another_end_in_one_table(suite: pytest.Pytester) -> None:
    run(suite, "tests/core")
    assert rows(run(suite, "tests/test_top.py")) == {"core": (4, 1, 1, 2), "tests": (1, 1, 0, 0), "all": (5, 2, 1, 2)}


def test_what_took_longest_comes_first_and_ten_tests_are_named() -> None:
    taken = [
        times.Taken(f"tests/{part}/test_a.py::test_{i}", "passed", i) for part in ("viz", "core") for i in range(9)
    ]
    lines = times.table([*taken, times.Taken("notebooks/00_start_here.ipynb::Cell 0", "passed", 100.0)]).splitlines()
    assert [line.split()[0] for line in lines[1:5]] == ["nbval", "viz", "core", "all"]
    assert [line.split()[-1] for line in lines[1:5]] == ["100.0", "36.0", "36.0", "172.0"]
    slowest = [line.split()[0] for line in lines[lines.index("slowest") + 1 :]]
    assert slowest == ["100.0", *(f"{i}.0" for i in (8, 8, 7, 7, 6, 6, 5, 5, 4))]


def test_without_a_file_there_is_no_table(suite: pytest.Pytester) -> None:
    shown = suite.runpytest("-p", "tests.times", "tests/test_top.py").stdout.str()
    assert "where the time went" not in shown

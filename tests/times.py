"""Where the time of the tests went: a line a part of the suite, a part being a folder of tests, and the slowest tests.

`pytest -p tests.times --times FILE` adds what each test took to FILE and ends with a table of all that FILE holds, so
that runs one after another, or beside each other, end in one table. Seconds are those of set-up, test and tear-down on
the clock; two workers spend two of them in a second.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

SLOWEST = 10
OUTCOMES = ("passed", "skipped", "failed")  # of set-up, test and tear-down, the last of these is the test's


class Taken(NamedTuple):
    nodeid: str
    outcome: str
    seconds: float


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--times", type=Path, metavar="FILE", help="add what each test took to FILE, and show the table")


def pytest_configure(config: pytest.Config) -> None:
    if config.option.times and not hasattr(config, "workerinput"):  # xdist's workers report to this process
        config.pluginmanager.register(Times(config.option.times))


class Times:
    """What the tests of one run took, written to the file when the run is over."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.taken: dict[str, Taken] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        before = self.taken.get(report.nodeid, Taken(report.nodeid, "passed", 0.0))
        outcome = max(before.outcome, report.outcome, key=OUTCOMES.index)
        self.taken[report.nodeid] = Taken(report.nodeid, outcome, before.seconds + report.duration)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.file.open("a", encoding="utf-8") as file:
            file.write("".join(f"{json.dumps(taken)}\n" for taken in self.taken.values()))
        terminalreporter.section("where the time went")
        terminalreporter.write(table(read(self.file)))


def read(file: Path) -> list[Taken]:
    """What all the runs so far have added to the file."""
    return [Taken(*json.loads(line)) for line in file.read_text(encoding="utf-8").splitlines()]


def part_of(nodeid: str) -> str:
    """The folder of tests/ that a test is in; `tests` without one, `refimpl` for its examples, `nbval` for cells.

    >>> [part_of(nodeid) for nodeid in ("tests/core/test_block.py::test", "tests/test_cases.py::test", "a/b.ipynb::0")]
    ['core', 'tests', 'nbval']
    """
    path = Path(nodeid.partition("::")[0])
    if path.suffix == ".ipynb":
        return "nbval"
    return path.parts[1] if path.parts[0] == "tests" and len(path.parts) > 2 else path.parts[0]


def table(taken: Iterable[Taken]) -> str:
    """A line a part, those that took longest first; their sum; and the slowest tests."""
    parts = defaultdict(list)
    for one in taken:
        parts[part_of(one.nodeid)].append(one)
    longest_first = sorted(parts.items(), key=lambda part: -seconds(part[1]))
    everything = [one for ones in parts.values() for one in ones]
    slowest = sorted(everything, key=lambda one: -one.seconds)[:SLOWEST]
    return "\n".join(
        [
            f"{'part':<12}{'tests':>7}{''.join(f'{outcome:>9}' for outcome in OUTCOMES)}{'seconds':>10}",
            *(row(name, ones) for name, ones in [*longest_first, ("all", everything)]),
            "",
            "slowest",
            *(f"{one.seconds:>8.1f}  {one.nodeid}" for one in slowest),
            "",
        ]
    )


def row(name: str, ones: Sequence[Taken]) -> str:
    counts = "".join(f"{sum(one.outcome == outcome for one in ones):>9}" for outcome in OUTCOMES)
    return f"{name:<12}{len(ones):>7}{counts}{seconds(ones):>10.1f}"


def seconds(ones: Iterable[Taken]) -> float:
    return sum(one.seconds for one in ones)

"""Runs strict nbval over the notebooks several times, under two hash seeds, and compares the verdicts.

`python tests/notebooks/repeat_nbval.py` does the full matrix, three runs under each seed; CI does `--runs 1`. The two
seeds run beside each other, each on one core; the cells of a notebook stay in one process.
Exit codes: 0 every cell passed in every run, 1 one did not, 2 nothing could be run.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[2]
SEEDS = ("0", "4242")
CELL_TIMEOUT = 60  # seconds, after which a cell is stopped
CELL_BUDGET = 20  # seconds on two cores: nbval gives up on outputs that come 5 s late, on a slower machine sooner

Verdicts = dict[str, str]  # "03_owners.ipynb::Cell 3" -> "passed", "failed", "error", "skipped" or "slow"


def nbval(paths: Sequence[Path], seed: str | None = None, options: Sequence[str] = ()) -> tuple[Verdicts, str]:
    """Run strict nbval in a process of its own; return its verdicts, none if it could not run, and its text."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"} | ({} if seed is None else {"PYTHONHASHSEED": seed})
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "--nbval", f"--nbval-cell-timeout={CELL_TIMEOUT}"]
        command += ["-q", "--color=no", "-p", "no:cacheprovider", "-p", "no:xdist", f"--junitxml={report}"]
        command += [*options, *map(str, paths)]
        ran = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT)
        verdicts = read_report(report) if ran.returncode in (0, 1) else {}  # others: pytest itself gave up
    return verdicts, ran.stdout + ran.stderr


def read_report(report: Path) -> Verdicts:
    """Return the verdict on each test from pytest's JUnit report."""
    kinds = {"failure": "failed", "error": "error", "skipped": "skipped"}
    verdicts = {}
    for case in ET.parse(report).iter("testcase"):
        marks = [kinds[child.tag] for child in case if child.tag in kinds]
        if not marks and float(case.get("time", 0)) > CELL_BUDGET:
            marks = ["slow"]
        verdicts[f"{case.get('classname')}::{case.get('name')}"] = marks[0] if marks else "passed"
    return verdicts


def disagreements(runs: Mapping[str, Verdicts]) -> list[str]:
    """Return one line for each cell that did not pass in all the runs, which are given by name."""
    names = sorted({cell for verdicts in runs.values() for cell in verdicts})
    said = {cell: {run: verdicts.get(cell, "absent") for run, verdicts in runs.items()} for cell in names}
    return [
        f"{cell}: " + ", ".join(f"{verdict} in {run}" for run, verdict in of_cell.items())
        for cell, of_cell in said.items()
        if set(of_cell.values()) != {"passed"}
    ]


def runs_under(seed: str, options: argparse.Namespace) -> dict[str, tuple[Verdicts, str]]:
    """The runs under one seed, one after the other, by name; a line for each as soon as it is over."""
    times = ["-p", "tests.times", f"--times={options.times}"] if options.times else []
    ran = {}
    for number in range(1, options.runs + 1):
        name = f"run {number} under seed {seed}"
        verdicts, said = nbval(options.paths, seed, times)
        print(f"{name}: {len(disagreements({name: verdicts}))} of {len(verdicts)} cells did not pass", flush=True)
        ran[name] = verdicts, said
    return ran


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("paths", nargs="*", type=Path, default=[ROOT / "notebooks", ROOT / "solutions"])
    parser.add_argument("--runs", type=int, default=3, help="runs under each hash seed (default 3)")
    parser.add_argument("--times", type=Path, metavar="FILE", help="add what cells took to FILE: tests/times.py")
    options = parser.parse_args(arguments)
    with ThreadPoolExecutor(len(SEEDS)) as pool:
        under_each = pool.map(lambda seed: runs_under(seed, options), SEEDS)
        runs = {name: ran for of_seed in under_each for name, ran in of_seed.items()}
    for verdicts, said in runs.values():
        if not verdicts:
            print(f"nbval could not run.\n{said}", file=sys.stderr)
            return 2
    found = disagreements({name: verdicts for name, (verdicts, _) in runs.items()})
    details = [said for name, (verdicts, said) in runs.items() if disagreements({name: verdicts})][:1]
    print("\n".join([*details, *found]) if found else f"{len(runs)} runs agree: every cell passed.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

"""Runs strict nbval over the notebooks several times, under two hash seeds, and compares the verdicts.

`python tests/notebooks/repeat_nbval.py` does the full matrix, three runs under each seed; CI does `--runs 1`.
Exit codes: 0 every cell passed in every run, 1 one did not, 2 nothing could be run.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
SEEDS = ("0", "4242")
CELL_TIMEOUT = 60  # seconds, after which a cell is stopped
CELL_BUDGET = 20  # seconds on two cores: nbval gives up on outputs that come 5 s late, on a slower machine sooner

Verdicts = dict[str, str]  # "03_owners.ipynb::Cell 3" -> "passed", "failed", "error", "skipped" or "slow"


def nbval(paths: Sequence[Path], seed: str | None = None, options: Sequence[str] = ()) -> tuple[Verdicts, str]:
    """Run strict nbval in a process of its own; return its verdicts, none if it could not run, and its text."""
    environment = dict(os.environ) if seed is None else {**os.environ, "PYTHONHASHSEED": seed}
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "--nbval", f"--nbval-cell-timeout={CELL_TIMEOUT}"]
        command += ["-q", "--color=no", "-p", "no:cacheprovider", f"--junitxml={report}", *options, *map(str, paths)]
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


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("paths", nargs="*", type=Path, default=[ROOT / "notebooks", ROOT / "solutions"])
    parser.add_argument("--runs", type=int, default=3, help="runs under each hash seed (default 3)")
    options = parser.parse_args(arguments)
    runs, details = {}, ""
    for name in [f"run {number} under seed {seed}" for seed in SEEDS for number in range(1, options.runs + 1)]:
        runs[name], said = nbval(options.paths, seed=name.split()[-1])
        if not runs[name]:
            print(f"nbval could not run.\n{said}", file=sys.stderr)
            return 2
        failed = len(disagreements({name: runs[name]}))
        print(f"{name}: {failed} of {len(runs[name])} cells did not pass", flush=True)
        details = details or (said if failed else "")
    found = disagreements(runs)
    print("\n".join([details, *found]) if found else f"{len(runs)} runs agree: every cell passed.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

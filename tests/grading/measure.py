"""A simulated class graded by one worker, by two, and with a worker and the whole run killed on the way: a command.

    python tests/grading/measure.py FOLDER [--size 200] [--seed 0] [--workers 1 2]

Takes minutes. Each time the marks have to be the expected ones; printed are submissions a minute and the most memory
that all processes had together. `tests/README.md` has the results.
"""

import argparse
import csv
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from planted import listening
from simulated_class import Expected, compare, make_class

ROOT = Path(__file__).parents[2]


class Run:
    """One `python -m refimpl grade` with what it took."""

    def __init__(self, folder: Path, course: Path, workers: int) -> None:
        command = [sys.executable, "-m", "refimpl", "grade", str(folder), "--course", str(course)]
        self.began = time.monotonic()
        self.process = subprocess.Popen(
            [*command, "--workers", str(workers)],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        self.peak = 0  # bytes
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while self.process.poll() is None:
            memory = 0
            for process in self.family():
                try:
                    memory += process.memory_full_info().pss
                except (psutil.Error, OSError):
                    continue
            self.peak = max(self.peak, memory)
            time.sleep(1)

    def family(self) -> list[psutil.Process]:
        try:
            grader = psutil.Process(self.process.pid)
            return [grader, *grader.children(recursive=True)]
        except psutil.Error:
            return []

    def worker(self) -> psutil.Process:
        return next(p for p in self.family() if any("spawn_main" in word for word in p.cmdline()))

    def end(self) -> str:
        """What it said, once it is over."""
        assert self.process.stderr is not None
        return self.process.stderr.read()


def new_course(folder: Path) -> Path:
    for name in ("exercises", "solutions"):
        shutil.copytree(ROOT / name, folder / name)
    shutil.copy(ROOT / "nbgrader_config.py", folder)
    return folder


def differences(expected: list[Expected], course: Path) -> list[str]:
    with (course / "marks" / "marks.csv").open(encoding="utf-8", newline="") as file:
        return compare(expected, csv.DictReader(file))


def kept(course: Path) -> dict[str, int]:
    """Each record of marks, and when it was written."""
    return {str(path): path.stat().st_mtime_ns for path in (course / "marks").rglob("*.json")}


def wait_for(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.2)


def measured(folder: Path, course: Path, workers: int, expected: list[Expected]) -> list[str]:
    """Grade once, and print what it took."""
    run = Run(folder, course, workers)
    said = run.end()
    seconds = time.monotonic() - run.began
    rate, memory = 60 * len(expected) / seconds, run.peak / 2**30
    print(
        f"{workers} workers: {len(expected)} in {seconds:.0f} s, {rate:.1f} a minute, {memory:.2f} GiB at most",
        flush=True,
    )
    print(said.strip(), flush=True)
    return differences(expected, course)


def disturbed(folder: Path, course: Path, expected: list[Expected]) -> list[str]:
    """Grade with two workers; kill one after a fifth, the run after two fifths, and go on."""
    run, fifth = Run(folder, course, 2), len(expected) // 5
    wait_for(lambda: len(kept(course)) >= fifth)
    run.worker().kill()
    wait_for(lambda: len(kept(course)) >= 2 * fifth)
    run.process.send_signal(signal.SIGKILL)
    run.end()
    before = kept(course)
    said = Run(folder, course, 2).end()
    after = kept(course)
    again = [path for path in before if after.get(path) != before[path]]
    print(f"worker and run killed, gone on: {len(before)} marked before, {len(again)} of them again", flush=True)
    print(said.strip(), flush=True)
    return [*differences(expected, course), *(f"marked twice: {path}" for path in again)]


def main() -> int:
    """0 when every mark is as expected in every run."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--size", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2])
    args = parser.parse_args()
    found: list[str] = []
    with listening() as (port, callers):
        submitted = args.folder / "class"
        expected = make_class(submitted, args.size, args.seed, port=port)
        print(f"{len(expected)} submissions, {sum(each.total for each in expected):g} points expected", flush=True)
        for workers in args.workers:
            course = new_course(args.folder / f"course-{workers}")
            found += [f"{workers} workers: {line}" for line in measured(submitted, course, workers, expected)]
        found += [f"disturbed: {line}" for line in disturbed(submitted, new_course(args.folder / "course"), expected)]
        found += [f"{caller} got through to the loopback address" for caller in callers]
    print("\n".join([*found, f"{len(found)} differences"]))
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())

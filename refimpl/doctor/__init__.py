"""`python -m refimpl doctor`: what is broken or missing here, the chapter that needs it, and the command that mends it.

Owns the list of places that are looked at and the report. A broken environment is what it is for: it needs no more
than the standard library, and whatever a look raises is one line of the report. Changes nothing.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from refimpl.doctor.environment import check_disk, check_python, check_versions
from refimpl.doctor.finding import ROOT, Finding
from refimpl.doctor.jupyter import check_jupyter
from refimpl.doctor.parts import check_attention, check_browser, check_grading, check_model

Check = Callable[[Path], list[Finding]]
CHECKS: dict[str, Check] = {
    "python": check_python,
    "versions": check_versions,
    "kernel": check_jupyter,
    "attention": check_attention,
    "model": check_model,
    "disk": check_disk,
    "browser": check_browser,
    "grading": check_grading,
}


def examine(root: Path = ROOT) -> Iterator[Finding]:
    """All findings in the order of the report; the looks are taken at the same time.

    Args:
        root: the checkout, whose lock and pyproject.toml say what there has to be.
    """
    with ThreadPoolExecutor(len(CHECKS)) as looks:
        for found in looks.map(lambda name: _look(name, root), CHECKS):
            yield from found


def _look(name: str, root: Path) -> list[Finding]:
    try:
        return CHECKS[name](root)
    except Exception as error:  # noqa: BLE001  a broken environment raises anything
        text = f"this could not be looked at: {type(error).__name__}: {str(error) or 'no message'}"
        return [Finding(name, "wrong", "every chapter", " ".join(text.split()), "make clean lab")]


def run(args: argparse.Namespace) -> int:
    """Print the report; the exit code: 1 when something is wrong, 0 otherwise, whatever optional part is missing."""
    if args.json:
        findings = list(examine())
        json.dump([dataclasses.asdict(finding) for finding in findings], sys.stdout, indent=2)
        print()
    else:
        findings = _tell(examine())
    return int(any(finding.status == "wrong" for finding in findings))


def _tell(findings: Iterator[Finding]) -> list[Finding]:
    """Print a line a finding as soon as it is known, and below it what mends it."""
    told: list[Finding] = []
    for finding in findings:
        print(f"{finding.status:<8} {finding.name:<10} needed for {finding.needed_for + ':':<19} {finding.text}")
        if finding.mend:
            print(f"{'':<8} {'mend it:':<10} {finding.mend}", flush=True)
        told.append(finding)
    wrong, missing = ([f for f in told if f.status == status] for status in ("wrong", "missing"))
    print(f"{len(told)} looked at, {len(wrong)} wrong, {len(missing)} optional and missing")
    return told

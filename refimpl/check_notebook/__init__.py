"""`python -m refimpl check`: an exercise notebook run from a clean kernel, as a grader runs it, and what is wrong.

Owns what a learner wants to know before handing in. Every cell is run in order in a new kernel that works in the
notebook's own folder, and the file is only read. A check cell is not run: in its place the kernel is asked to check the
subject, and the answer is read from its reply, so nothing that a cell prints or calls `check` can pass for a result. It
keeps accidents from being taken for points and is no security boundary: cells run in the same process as the checks.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from refimpl.check_notebook.clean_run import CleanRun
from refimpl.check_notebook.document import Document
from refimpl.check_notebook.kernel import CELL_TIMEOUT
from refimpl.check_notebook.report import CannotRun, Report
from refimpl.checks.step import counted


def main(paths: Sequence[Path], as_json: bool = False, timeout: float = CELL_TIMEOUT) -> int:
    """Check notebooks for the command line.

    Args:
        paths: of the notebooks.
        as_json: print one list of reports instead of lines.
        timeout: seconds for one cell.

    Returns 0 when every step of all of them passed and nothing is wrong, 1 when something is, and 2 when one of them
    cannot be run; then none is.
    """
    documents, refused = [], []
    for path in paths:
        try:
            documents.append(Document(path))
        except CannotRun as error:
            refused.append(str(error))
    reports: list[Report] = []
    try:
        for document in documents if not refused else ():
            reports.append(CleanRun(document, timeout).report())
            if not as_json:
                print("\n".join(reports[-1].lines()), flush=True)
    except CannotRun as error:
        refused.append(f"{document.path}: {error}")
    if refused:
        print("\n".join(f"check: {reason}" for reason in refused), file=sys.stderr)
        return 2
    if as_json:
        print(json.dumps([report.as_json() for report in reports], indent=2, ensure_ascii=False))
    elif len(reports) > 1:
        good = sum(report.is_good for report in reports)
        points, most = sum(report.points for report in reports), sum(report.max_points for report in reports)
        print(f"{good} of {counted(len(reports), 'notebook')} without a fault, {points:g} of {most} points")
    return int(not all(report.is_good for report in reports))

"""`python -m refimpl.grade.inside`: marks one submission, inside the walls that `apart` put around it.

Reads a request from stdin and writes lines of JSON to stdout: each check's result as soon as it is known, so that a
submission which brings this process down keeps what it had earned, and the whole report at the end. Nothing that cells
print comes here: the kernel has no way to this process's output.
"""

from __future__ import annotations

import ctypes
import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import Any

from refimpl.check_notebook.clean_run import CleanRun
from refimpl.check_notebook.document import Document
from refimpl.check_notebook.report import CannotRun
from refimpl.checks import CheckResult
from refimpl.grade.limits import Limits, keep
from refimpl.grade.watch import Watch

_PR_SET_DUMPABLE = 4  # of linux/prctl.h


def main() -> None:
    """Answer the request on stdin."""
    request = json.load(sys.stdin)
    _say({"begins": request["path"]})
    limits = Limits(**request["limits"])
    keep(limits)
    shut()
    watch = Watch(limits, request["refused"])
    try:
        run = CleanRun(Document(Path(request["path"])), limits.cell_seconds, limits.check_seconds, watch.kernel, _tell)
        report = run.report()
        _say({"report": report.as_json(), "memory": watch.peak})
    except CannotRun as error:
        _say({"cannot": str(error)})


def shut() -> None:
    """Nobody below opens this process's files, its output among them. (Linux only.)"""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def _tell(result: CheckResult) -> None:
    _say({"result": dataclasses.asdict(result)})


def _say(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # whatever a kernel left in the way of a tidy end

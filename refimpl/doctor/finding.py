"""What one look at the environment gives, and the two things that every look needs: this Python's name, and a probe.

A probe runs in a process of its own, so that a package that crashes or hangs when it is imported is an answer and not
the end of the doctor. Nothing here imports more than the standard library.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import refimpl

ROOT = Path(refimpl.__file__).resolve().parents[1]
TIME_LIMIT = 60.0  # seconds for a probe: importing torch takes two, twenty on a slow disk


Status = Literal["ok", "wrong", "missing"]


class ProbeFailed(Exception):
    """A probe did not end well; the text is one line: what Python said last, or how it ended."""


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """What was found at one place.

    Args:
        name: of the place.
        status: "ok"; "wrong", which the course does not work with; "missing", which it works without for now.
        needed_for: the chapters, or the people, that it matters to.
        text: what is there, with numbers and limits.
        mend: the one command that makes it ok, empty where all is well.
    """

    name: str
    status: Status
    needed_for: str
    text: str
    mend: str = ""


def python() -> str:
    """How one calls this Python from here."""
    path = Path(sys.executable)
    return quoted(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def install(root: Path, file: str = "requirements.txt") -> str:
    """The command that installs `file`, a part of the lock of the checkout `root`."""
    return f"{python()} -m pip install -r {quoted(Path(file) if Path.cwd() == root else root / file)}"


def quoted(path: Path) -> str:
    """The path as every shell takes it.

    >>> quoted(Path("my course"))
    '"my course"'
    """
    return f'"{path}"' if " " in str(path) else str(path)


def probe(command: list[str], code: str, folder: Path, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """What `code`, run by the Python that `command` starts in `folder`, prints last: one line of JSON.

    Raises:
        ProbeFailed: when there is no such program, it ends with an error, takes longer than `TIME_LIMIT`, or prints
            something else.
    """
    try:
        ran = subprocess.run(
            [*command, "-c", code],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIME_LIMIT,
            cwd=folder,
            env={**os.environ, **(environment or {})},
            check=False,
        )
    except FileNotFoundError:
        raise ProbeFailed(f"there is no {command[0]}") from None
    except OSError as error:
        raise ProbeFailed(f"{command[0]} does not start: {error.strerror}") from error
    except subprocess.TimeoutExpired:
        raise ProbeFailed(f"no answer within {TIME_LIMIT:g} s") from None
    if ran.returncode:
        said = ran.stderr.strip().splitlines() or [f"Python ended with exit code {ran.returncode}"]
        raise ProbeFailed(said[-1])
    try:
        answer: dict[str, Any] = json.loads(ran.stdout.strip().splitlines()[-1])
    except (IndexError, ValueError):
        raise ProbeFailed(f"it printed {ran.stdout.strip()[-80:]!r}") from None
    return answer

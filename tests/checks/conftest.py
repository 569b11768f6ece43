"""Proves every step in two processes beside the tests, on cores that wait otherwise, under two hash seeds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
from learners import ROOT

collect_ignore_glob = ["conftest.py"]  # as a module with examples: there is more than one of this name

COMMAND = [sys.executable, "-W", "error::SyntaxWarning", "-m", "refimpl", "checks", "--json", "--proof"]
LIMIT = 600  # seconds


@pytest.fixture(scope="session", autouse=True)
def proofs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """Waits for `checks --proof --json` under each seed, and gives what each wrote: exercise id -> its proof.

    They start with the first test of this folder and prove the chapters that tests ask for; none for no such test.
    """
    functions = [(item, getattr(item, "function", None)) for item in request.session.items]
    asked = [item for item, function in functions if "proofs" in getattr(function, "__annotations__", {})]
    paths = [item.callspec.params["path"] for item in asked if hasattr(item, "callspec")]  # of wrong solutions
    chapters = sorted({path.parent.name[:2] for path in paths}) if len(paths) == len(asked) else []
    folder = tmp_path_factory.mktemp("proofs")

    def start(seed: str) -> subprocess.Popen[bytes]:
        with (folder / seed).open("w") as file:
            environment = {**os.environ, "PYTHONHASHSEED": seed}
            command = [*COMMAND, *chapters]
            return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=file, stderr=subprocess.STDOUT)

    running = {seed: start(seed) for seed in ("1", "2") if asked}

    @cache
    def wait() -> list[dict[str, Any]]:
        found = []
        for seed, process in running.items():
            code = process.wait(LIMIT)
            written = (folder / seed).read_text("utf-8")
            assert code in (0, 1), written
            found.append({proof["exercise_id"]: proof for proof in json.loads(written)})
        return found

    try:
        yield wait
    finally:
        for process in running.values():
            process.kill()
            process.wait()

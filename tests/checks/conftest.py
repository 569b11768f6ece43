"""Starts the long proof with the first test of this folder, so that it runs beside the others on a second core."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from learners import ROOT

collect_ignore_glob = ["conftest.py"]  # as a module with examples: there is more than one of this name

COMMAND = [sys.executable, "-W", "error::SyntaxWarning", "-m", "refimpl", "checks", "--proof", "--json"]
LIMIT = 300  # seconds
ASKS = "test_every_word_is_the_same_in_another_process_with_another_hash_seed"

Wait = Callable[[], tuple[int, str]]


@pytest.fixture(scope="session", autouse=True)
def proof_elsewhere(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wait | None]:
    """Waits for `checks --proof --json` under another hash seed: its exit code, and what it wrote."""
    if all(item.name != ASKS for item in request.session.items):
        yield None
        return
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    path = tmp_path_factory.mktemp("proof") / "written"
    with path.open("w") as file:
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        running = subprocess.Popen(COMMAND, cwd=ROOT, env=environment, stdout=file, stderr=subprocess.STDOUT)
    try:
        yield lambda: (running.wait(LIMIT), path.read_text("utf-8"))
    finally:
        running.kill()
        running.wait()

"""Proves every step in processes of their own, under two hash seeds, once for all tests that read what was proven."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from learners import ROOT

collect_ignore_glob = ["conftest.py"]  # as a module with examples: there is more than one of this name

COMMAND = [sys.executable, "-W", "error::SyntaxWarning", "-m", "refimpl", "checks", "--json", "--proof"]
SEEDS = ("1", "2")
LIMIT = 900  # seconds, on a machine that does something else as well

Proven = dict[str, dict[str, Any]]  # exercise id -> what `checks --proof --json` writes of the step


@pytest.fixture(scope="session")
def proofs(request: pytest.FixtureRequest) -> list[Proven]:
    """What is proven under each seed; beside another worker one after the other, so that no core has two to serve."""
    chapters = chapters_asked_for(request.session.items)
    with ThreadPoolExecutor(1 if "PYTEST_XDIST_WORKER" in os.environ else len(SEEDS)) as pool:
        return list(pool.map(lambda seed: prove(chapters, seed), SEEDS))


def prove(chapters: Iterable[str], seed: str) -> Proven:
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    ran = subprocess.run(
        [*COMMAND, *chapters], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT
    )
    assert ran.returncode in (0, 1), ran.stderr
    return {proof["exercise_id"]: proof for proof in json.loads(ran.stdout)}


def chapters_asked_for(items: Iterable[pytest.Item]) -> list[str]:
    """The chapters with which the ids of such tests begin; none, which proves all, when a test reads of them all."""
    asked = [item for item in items if "proofs" in getattr(item, "fixturenames", ())]
    numbers = {item.callspec.id[:2] if hasattr(item, "callspec") else "" for item in asked}
    return [] if "" in numbers else sorted(numbers)

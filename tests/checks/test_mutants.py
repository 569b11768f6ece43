"""Every named misconception has a wrong solution, and the check names each; wrong code without a name is wrong, too.

`tests/mutants/EXERCISE/MISCONCEPTION.py` holds the one method or function that is wrong, and the thought behind it in
a line. `MISCONCEPTION__OTHER.py` is another shape of the same thought.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from learners import load, mutants, subject

from refimpl.checks import CheckResult, steps
from refimpl.checks.engine import examine

ALL = [pytest.param(*mutant, id=f"{mutant[0]}/{mutant[2].stem}") for mutant in mutants()]
MOST_OPERATIONS = 6


def result_of(exercise_id: str, path: Path) -> CheckResult:
    step = steps()[exercise_id]
    return examine(step, subject(step, load(path)[step.asks_for[0]]))


def operations(result: CheckResult) -> list[str]:
    """The trace without the line that makes the allocator."""
    return [line for line in result.trace if not line.startswith("allocator = ")]


def test_misconceptions_and_mutants_are_the_same_catalogue() -> None:
    named = {(step.exercise_id, name) for step in steps().values() for name in step.misconceptions}
    assert named == {(exercise_id, name) for exercise_id, name, _ in mutants()}


def test_every_step_names_three_misconceptions() -> None:
    assert {step.exercise_id for step in steps().values() if len(step.misconceptions) < 3} == set()


@pytest.mark.parametrize(("exercise_id", "misconception", "path"), ALL)
def test_a_mutant_is_rejected_and_named(exercise_id: str, misconception: str, path: Path) -> None:
    result = result_of(exercise_id, path)
    assert (result.outcome, result.misconception) == ("misconception", misconception), str(result)
    assert result.points < result.max_points
    assert 1 <= len(operations(result)) <= MOST_OPERATIONS, str(result)
    assert not set("{}") & set(result.message)
    assert result.message.endswith(".")
    assert str(result_of(exercise_id, path)) == str(result)


@pytest.mark.parametrize(("exercise_id", "misconception", "path"), ALL)
def test_a_mutant_says_its_thought_in_one_line(exercise_id: str, misconception: str, path: Path) -> None:
    thought = load(path)["__doc__"]
    assert thought.endswith(".")
    assert "\n" not in thought


def test_the_words_are_the_same_under_any_hash_seed() -> None:
    script = (
        "import json; from test_mutants import mutants, result_of; "
        "print(json.dumps([str(result_of(exercise_id, path)) for exercise_id, _, path in mutants()]))"
    )
    here = Path(__file__).parent
    root = str(here.parents[1])

    def run(seed: str) -> Any:
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": f"{here}{os.pathsep}{root}"}
        command = [sys.executable, "-W", "error::SyntaxWarning", "-c", script]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
        return json.loads(done.stdout)

    assert run("1") == run("2")

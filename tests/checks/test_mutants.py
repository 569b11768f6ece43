"""Every named misconception has a wrong solution, and the check names each; wrong code without a name is wrong, too.

`tests/mutants/EXERCISE/MISCONCEPTION.py` holds what is wrong, and the thought behind it in a line.
`MISCONCEPTION__OTHER.py` is another shape of the same thought.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from learners import ROOT, mutant_verdict

from refimpl import proof
from refimpl.checks import steps

MUTANTS = proof.mutants(ROOT)
by_mutant = pytest.mark.parametrize("path", MUTANTS, ids=lambda path: f"{path.parent.name}/{path.stem}")


def test_misconceptions_and_mutants_are_the_same_catalogue() -> None:
    named = {(step.exercise_id, name) for step in steps().values() for name in step.misconceptions}
    assert named == {(path.parent.name, proof.misconception_of(path)) for path in MUTANTS}


def test_every_step_names_three_misconceptions() -> None:
    few = [step.exercise_id for step in steps().values() if len(step.misconceptions) < proof.FEWEST_MISCONCEPTIONS]
    assert few == []


@pytest.mark.xfail(strict=True, reason="in preparation; take this line out when all seven chapters are there")
def test_chapters_1_to_7_have_a_hundred_wrong_solutions() -> None:
    assert len([path for path in MUTANTS if "01" <= path.parent.name[:2] <= "07"]) >= 100


@by_mutant
def test_a_mutant_is_rejected_and_named(path: Path) -> None:
    verdict = mutant_verdict(path.parent.name, path)
    assert not verdict.fault, verdict.said
    assert (verdict.outcome, verdict.misconception) == ("misconception", proof.misconception_of(path))
    assert verdict.points < steps()[path.parent.name].points
    sentence, *history = verdict.said.splitlines()
    assert sentence.endswith(".")
    assert not re.search(r"\{\w*\}", sentence), "a name in braces was not filled in"
    assert history


@by_mutant
def test_a_mutant_says_its_thought_in_one_line(path: Path) -> None:
    thought = ast.get_docstring(ast.parse(path.read_text("utf-8")))
    assert thought
    assert thought.endswith(".")
    assert "\n" not in thought


def test_every_word_is_the_same_in_another_process_with_another_hash_seed(
    proof_elsewhere: Callable[[], tuple[int, str]],
) -> None:
    """The command line says that all is proven, and of each wrong solution what was said here."""
    code, written = proof_elsewhere()
    assert code == 0, written[-2000:]
    there = json.loads(written)
    assert [found["exercise_id"] for found in there] == list(steps())
    for found in there:
        assert found["faults"] == []
        for mutant in found["mutants"]:
            path = ROOT / proof.MUTANTS / found["exercise_id"] / f"{mutant['name']}.py"
            assert mutant["said"] == mutant_verdict(found["exercise_id"], path).said

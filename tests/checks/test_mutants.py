"""Every named misconception has a wrong solution, and the check names each; wrong code without a name is wrong, too.

`tests/mutants/EXERCISE/MISCONCEPTION.py` holds what is wrong, and the thought behind it in a line.
`MISCONCEPTION__OTHER.py` is another shape of the same thought.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from learners import ROOT

from refimpl import proof
from refimpl.checks import steps

Proofs = Callable[[], list[dict[str, Any]]]

MUTANTS = proof.mutants(ROOT)
by_mutant = pytest.mark.parametrize("path", MUTANTS, ids=lambda path: f"{path.parent.name}/{path.stem}")


def test_misconceptions_and_mutants_are_the_same_catalogue() -> None:
    named = {(step.exercise_id, name) for step in steps().values() for name in step.misconceptions}
    assert named == {(path.parent.name, proof.misconception_of(path)) for path in MUTANTS}


def test_every_step_names_three_misconceptions() -> None:
    few = [step.exercise_id for step in steps().values() if len(step.misconceptions) < proof.FEWEST_MISCONCEPTIONS]
    assert few == []


def test_chapters_1_to_7_have_a_hundred_wrong_solutions() -> None:
    assert len([path for path in MUTANTS if "01" <= path.parent.name[:2] <= "07"]) >= 100


@by_mutant
def test_a_mutant_is_rejected_and_named(path: Path, proofs: Proofs) -> None:
    """In the same words under both hash seeds."""
    verdict, again = (
        next(mutant for mutant in found[path.parent.name]["mutants"] if mutant["name"] == path.stem)
        for found in proofs()
    )
    assert verdict["said"] == again["said"]
    assert not verdict["fault"], verdict["said"]
    assert (verdict["outcome"], verdict["misconception"]) == ("misconception", proof.misconception_of(path))
    assert verdict["points"] < steps()[path.parent.name].points
    sentence, *history = verdict["said"].splitlines()
    assert sentence.endswith(".")
    assert not re.search(r"\{\w*\}", sentence), "a name in braces was not filled in"
    assert history


@by_mutant
def test_a_mutant_says_its_thought_in_one_line(path: Path) -> None:
    thought = ast.get_docstring(ast.parse(path.read_text("utf-8")))
    assert thought
    assert thought.endswith(".")
    assert "\n" not in thought


def test_all_is_proven_and_in_the_same_words_under_another_hash_seed(proofs: Proofs) -> None:
    one, other = proofs()
    assert list(one) == list(steps())
    assert [fault for found in one.values() for fault in found["faults"]] == []
    assert one == other

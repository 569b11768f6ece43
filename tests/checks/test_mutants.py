"""What `checks --proof` shows of every step: right code passes, and each named misconception is named in wrong code.

`tests/mutants/EXERCISE/MISCONCEPTION.py` holds what is wrong, and the thought behind it in a line.
`MISCONCEPTION__OTHER.py` is another shape of the same thought.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest
from learners import ROOT

from refimpl import proof
from refimpl.checks import steps
from refimpl.checks.step import Step

Proofs = list[dict[str, dict[str, Any]]]  # under each hash seed: exercise id -> its proof

MUTANTS = proof.mutants(ROOT)
DESIGNS = [
    pytest.param(path, step, id=f"{path.stem}/{step.exercise_id}")
    for step in steps().values()
    for path in proof.second_designs(ROOT, step.exercise_id[:2])
    if step.subject in proof.load(path)
]
by_mutant = pytest.mark.parametrize("path", MUTANTS, ids=lambda path: f"{path.parent.name}/{path.stem}")


def test_misconceptions_and_mutants_are_the_same_catalogue() -> None:
    named = {(step.exercise_id, name) for step in steps().values() for name in step.misconceptions}
    assert named == {(path.parent.name, proof.misconception_of(path)) for path in MUTANTS}


def test_every_step_names_three_misconceptions() -> None:
    few = [step.exercise_id for step in steps().values() if len(step.misconceptions) < proof.FEWEST_MISCONCEPTIONS]
    assert few == []


def test_chapters_1_to_7_have_a_hundred_wrong_solutions() -> None:
    assert len([path for path in MUTANTS if "01" <= path.parent.name[:2] <= "07"]) >= 100


def named(verdicts: list[dict[str, Any]], name: str) -> dict[str, Any]:
    (verdict,) = (verdict for verdict in verdicts if verdict["name"] == name)
    return verdict


@pytest.mark.parametrize("step", steps().values(), ids=lambda step: step.exercise_id)
def test_a_good_answer_passes_and_says_what_was_run(step: Step, proofs: Proofs) -> None:
    histories = len(step.examples) + (step.random_histories or 60)
    for proven in proofs:
        verdict = proven[step.exercise_id]["reference"]
        assert verdict["said"].endswith(f"{len(step.properties) + 1} properties held on {histories} histories.")
        assert (verdict["outcome"], verdict["points"]) == ("passed", step.points)


@pytest.mark.parametrize(("path", "step"), DESIGNS)
def test_a_design_of_another_shape_passes(path: Path, step: Step, proofs: Proofs) -> None:
    for proven in proofs:
        verdict = named(proven[step.exercise_id]["second_designs"], path.stem.partition("_")[2])
        assert not verdict["fault"], verdict["said"]
        assert (verdict["outcome"], verdict["points"]) == ("passed", step.points)


def test_every_step_has_a_design_of_another_shape_and_every_design_a_step() -> None:
    assert {param.values[1].exercise_id for param in DESIGNS} == steps().keys()
    assert {param.values[0] for param in DESIGNS} == set(proof.second_designs(ROOT))


@by_mutant
def test_a_mutant_is_rejected_and_named(path: Path, proofs: Proofs) -> None:
    """In the same words under both hash seeds."""
    verdict, again = (named(proven[path.parent.name]["mutants"], path.stem) for proven in proofs)
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
    one, other = proofs
    assert list(one) == list(steps())
    assert [fault for found in one.values() for fault in found["faults"]] == []
    assert one == other

"""`python -m refimpl checks --proof`: what it shows, and that it finds whatever is not as it must be.

Each test spoils one file in a copy of what chapter 3 needs.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from learners import ROOT

from refimpl import cli, proof
from refimpl.checks import steps

CHAPTER = "03_uncached_allocator"
SHARE = "tests/mutants/03-share"


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """Chapter 3 of a checkout, and nothing else of it."""
    for folder in (f"solutions/{CHAPTER}", f"exercises/{CHAPTER}", *(f"tests/mutants/{id_}" for id_ in steps())):
        if (ROOT / folder).exists() and "03" in folder:
            shutil.copytree(ROOT / folder, tmp_path / folder)
    (tmp_path / "tests/second_designs").mkdir()
    for path in proof.second_designs(ROOT, "03"):
        shutil.copy(path, tmp_path / "tests/second_designs")
    return tmp_path


def faults(root: Path) -> list[str]:
    return list(proof.prove_step(root, steps()["03-share"], proof.Chapter(root, "03")).faults)


def replace(path: str, old: str, new: str) -> Callable[[Path], object]:
    def spoil(root: Path) -> None:
        text = (root / path).read_text("utf-8")
        assert old in text
        (root / path).write_text(text.replace(old, new), "utf-8")

    return spoil


def remove(path: str) -> Callable[[Path], object]:
    return lambda root: shutil.rmtree(root / path) if (root / path).is_dir() else (root / path).unlink()


def write(path: str, text: str) -> Callable[[Path], object]:
    return lambda root: (root / path).write_text(text, "utf-8")


SOLUTION, EXERCISE = (f"{folder}/{CHAPTER}/{CHAPTER}.ipynb" for folder in ("solutions", "exercises"))
DESIGN = "tests/second_designs/03_comprehension.py"
GOOD = """def share_block_table(block_table):
    for block in block_table:
        block.ref_count += 1
    return list(block_table)
"""

SPOILT: dict[str, tuple[Callable[[Path], object], str]] = {
    "the answer is wrong": (
        replace(SOLUTION, "return block_table.copy()", "return block_table"),
        "reference is misconc",
    ),
    "the answer does not run": (
        replace(SOLUTION, "return block_table.copy()", "return ("),
        "reference its cell 03-share-",
    ),
    "there is no solution": (remove(SOLUTION), "reference solutions/03_*/03_*.ipynb is 0 notebooks"),
    "there is no exercise": (remove(EXERCISE), "generate it with: python -m refimpl release"),
    "the stub is the answer": (
        lambda root: shutil.copy(root / SOLUTION, root / EXERCISE),
        "stub is passed, 3.0 points",
    ),
    "a mutant is right": (write(f"{SHARE}/same-list.py", GOOD), "mutant same-list is passed (not named)"),
    "a mutant has another name": (
        lambda root: shutil.copy(root / SHARE / "same-list.py", root / SHARE / "blocks-copied.py"),
        "mutant blocks-copied is misconception (same-list)",
    ),
    "a mutant is empty": (write(f"{SHARE}/same-list.py", ""), "mutant same-list it defines none of share_block_table"),
    "a mutant does not run": (write(f"{SHARE}/same-list.py", "1 / 0"), "mutant same-list it raised ZeroDivisionError"),
    "a mutant is missing": (remove(f"{SHARE}/same-list.py"), "no mutant shows the misconception same-list"),
    "a design is wrong": (replace(DESIGN, "+= 1", "= 2"), "second design comprehension is misconception"),
    "there is no design": (remove(DESIGN), "no file in tests/second_designs defines another share_block_table"),
}


def test_nothing_is_wrong_with_the_copy(copied: Path) -> None:
    assert faults(copied) == []


@pytest.mark.parametrize(("spoil", "said"), SPOILT.values(), ids=SPOILT.keys())
def test_what_is_not_proven_is_said(copied: Path, spoil: Callable[[Path], object], said: str) -> None:
    spoil(copied)
    assert [fault for fault in faults(copied) if said in fault], faults(copied)


def test_the_command_prints_a_table_and_what_is_not_proven(
    copied: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(copied)
    assert cli.main(["checks", "--proof", "3"]) == 0
    header, *rows, totals, last = capsys.readouterr().out.splitlines()
    assert header.split("  ")[0] == "step"
    assert [row.split()[0] for row in rows] == ["03-allocate", "03-free", "03-share"]
    assert rows[-1].endswith("passed         not attempted  13 of 13       comprehension")
    assert (totals.split()[:3], last) == (["3", "steps", "10"], "all proven")

    (copied / SHARE / "same-list.py").unlink()
    assert cli.main(["checks", "--proof", "03"]) == 1
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "03-share: no mutant shows the misconception same-list",
        "not proven: 1 of 3 steps",
    ]
    assert cli.main(["checks", "--proof", "03", "--json"]) == 1
    assert [found["exercise_id"] for found in json.loads(capsys.readouterr().out) if found["faults"]] == ["03-share"]


@pytest.mark.parametrize(
    ("arguments", "folder", "said"),
    [
        ([], ".", "lacks solutions, tests/mutants, tests/second_designs: run this in a checkout"),
        (["77"], ROOT, "chapter 77 has no steps; those that have: 00, "),
    ],
)
def test_what_cannot_be_tried_is_said(
    arguments: list[str],
    folder: Path,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path / folder)
    assert cli.main(["checks", "--proof", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err


def test_wrong_solutions_for_no_step_are_not_passed_over(copied: Path) -> None:
    (copied / "tests/mutants/03-fre").mkdir()
    (copied / "tests/mutants/03-fre/never-comes-back.py").touch()
    with pytest.raises(proof.CannotProve, match="holds 03-fre, and there are no such steps"):
        proof.prove(copied)

"""What the sources of the checks must not do, read in their syntax trees; each rule is shown code that breaks it."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import refimpl.checks
from refimpl.checks import steps
from refimpl.checks.catalogue import CHAPTERS, chapter_numbers, chapter_steps

FOLDER = Path(refimpl.checks.__file__).parent
SOURCES = sorted(FOLDER.rglob("*.py"))
CHAPTER = re.compile(r"ch\d\d_\w+")  # a module, or a folder with a module for each idea
CHAPTER_SOURCES = [path for path in SOURCES if CHAPTER.match(path.relative_to(FOLDER).parts[0])]
COMPARISONS = {"expect", "hold", "refuse"}


def swallowed_errors(tree: ast.AST) -> list[str]:
    """W7: bare excepts, and broad ones that do nothing."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler):
            broad = node.type is None or ast.unparse(node.type) in ("Exception", "BaseException")
            idle = all(isinstance(statement, ast.Pass | ast.Continue) for statement in node.body)
            if node.type is None or (broad and idle):
                found.append(f"line {node.lineno}: except {'' if node.type is None else ast.unparse(node.type)}")
    return found


def called(function: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(function) if isinstance(node, ast.Call))


def classes_in(tree: ast.AST) -> dict[str, ast.ClassDef]:
    return {node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}


def idle_worlds(tree: ast.AST) -> list[str]:
    """W6: worlds that perform operations and compare nothing, in themselves or in a class of refimpl.checks below."""
    own = classes_in(tree)
    classes = {**SHARED, **own}

    def compares(name: str) -> bool:
        node = classes.get(name)
        if node is None:
            return False
        own = any(isinstance(call.func, ast.Attribute) and call.func.attr in COMPARISONS for call in called(node))
        return own or any(compares(ast.unparse(base)) for base in node.bases)

    worlds = [name for name in own if name.endswith("World") and name != "World"]
    return [name for name in worlds if not compares(name)]


def properties_that_only_look(tree: ast.AST) -> set[str]:
    """W7: properties whose every comparison asks no more than whether an attribute is there."""
    looks: dict[str, list[bool]] = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef):
            continue
        flags = {
            target.id
            for statement in ast.walk(node)
            if isinstance(statement, ast.Assign) and "hasattr" in ast.unparse(statement.value)
            for target in statement.targets
            if isinstance(target, ast.Name)
        }
        for call in called(node):
            if isinstance(call.func, ast.Attribute) and call.func.attr in COMPARISONS and call.args:
                said = [ast.unparse(argument) for argument in call.args[1:3]]
                only_looks = call.func.attr == "hold" and any("hasattr" in text or text in flags for text in said)
                looks.setdefault(ast.unparse(call.args[0]), []).append(only_looks)
    return {name for name, each in looks.items() if all(each)}


SHARED = {
    name: node
    for path in SOURCES
    if path not in CHAPTER_SOURCES
    for name, node in classes_in(ast.parse(path.read_text("utf-8"))).items()
}


def named(path: Path) -> str:
    """A source as a test's id."""
    return path.relative_to(FOLDER).with_suffix("").as_posix()


@pytest.mark.parametrize("path", SOURCES, ids=named)
def test_no_check_swallows_errors(path: Path) -> None:
    assert swallowed_errors(ast.parse(path.read_text("utf-8"))) == []


def test_every_chapter_file_is_in_the_catalogue() -> None:
    chapters = {named(path).partition("/")[0] for path in CHAPTER_SOURCES}
    assert sorted(chapters) == list(CHAPTERS)


@pytest.mark.parametrize("path", CHAPTER_SOURCES, ids=named)
def test_every_world_compares(path: Path) -> None:
    tree = ast.parse(path.read_text("utf-8"))
    assert idle_worlds(tree) == []
    assert properties_that_only_look(tree) == set()


@pytest.mark.parametrize("step", steps().values(), ids=lambda step: step.exercise_id)
def test_every_step_has_properties_examples_and_random_histories(step: refimpl.checks.step.Step) -> None:
    assert len(set(step.properties)) == len(step.properties) >= 2
    assert step.examples
    assert step.points > 0
    assert all(sentence.endswith(".") and len(sentence) < 260 for sentence in step.misconceptions.values())


@pytest.mark.parametrize("number", chapter_numbers())
def test_the_points_of_a_chapter_are_ten(number: str) -> None:
    """Chapter 00 has a toy."""
    points = [step.points for step in chapter_steps(number).values()]
    assert sum(points) == (1 if number == "00" else 10)


def test_no_chapter_before_the_ninth_needs_torch() -> None:
    """A learner's first weeks load in a moment, and on a machine that lacks it."""
    code = (
        "import sys; sys.modules['torch'] = None; from refimpl.checks.catalogue import chapter_numbers, chapter_steps;"
        "assert all(chapter_steps(number) for number in chapter_numbers() if number < '09')"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_world_may_compare_in_a_class_that_chapters_share() -> None:
    assert idle_worlds(ast.parse("class SwapWorld(ManagerWorld): ...\nclass BackWorld(SwapWorld): ...")) == []


def test_the_engine_knows_no_chapter() -> None:
    for name in ("engine", "sandbox", "result", "step", "notebook"):
        source = (FOLDER / f"{name}.py").read_text("utf-8")
        code = ast.parse(source)
        imports = [ast.unparse(node) for node in ast.walk(code) if isinstance(node, ast.Import | ast.ImportFrom)]
        assert not [line for line in imports if re.search(r"\bch\d\d|allocator|block", line)], name


@pytest.mark.parametrize(
    ("rule", "bad"),
    [
        (swallowed_errors, "try:\n    f()\nexcept:\n    g()"),
        (swallowed_errors, "try:\n    f()\nexcept Exception:\n    pass"),
        (idle_worlds, "class IdleWorld(World):\n    def perform(self, operation): self.log.call('f()', f)"),
        (idle_worlds, "class IdleWorld(ChapterWorld): ..."),
        (
            properties_that_only_look,
            "def f(self):\n    fits = hasattr(x, 'y')\n    self.log.hold(NAME, fits, 'a', 'b')",
        ),
        (properties_that_only_look, "def f(self):\n    self.log.hold(NAME, hasattr(x, 'y'), 'a', 'b')"),
    ],
)
def test_each_rule_finds_what_it_is_for(rule: object, bad: str) -> None:
    assert callable(rule)
    assert len(rule(ast.parse(bad))) == 1

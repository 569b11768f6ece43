"""What a learner is asked to write is the reference's own code: the two are compared as syntax trees."""

import ast
import inspect
import textwrap
from pathlib import Path

import nbformat
import pytest

import refimpl

SOLUTIONS = sorted((Path(__file__).parents[1] / "solutions").glob("*/*.ipynb"))


def answers(path):
    """The functions of the notebook's answer cells, with the class each one joins or None."""
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.metadata.get("nbgrader", {}).get("solution"):
            (function,) = ast.parse(cell.source).body
            joined = [call.args[0].id for call in function.decorator_list]
            yield joined[0] if joined else None, function


def reference(class_name, name):
    owner = getattr(refimpl, class_name) if class_name else refimpl
    (function,) = ast.parse(textwrap.dedent(inspect.getsource(getattr(owner, name)))).body
    return function


def bare(function):
    """The syntax tree of a function, decorators and docstrings aside."""
    function.decorator_list = []
    for node in ast.walk(function):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node):
            del node.body[0]
    return ast.dump(function, indent=1)


def test_there_are_solutions():
    assert SOLUTIONS


@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.stem)
def test_answers_equal_the_reference(path):
    found = list(answers(path))
    assert found
    for class_name, function in found:
        assert bare(function) == bare(reference(class_name, function.name)), f"{path.stem}: {function.name}"


def test_a_changed_answer_is_noticed():
    ours = reference("UncachedBlockAllocator", "free")
    theirs = ast.parse(ast.unparse(ours).replace("-= 1", "-= 2")).body[0]
    assert bare(ours) != bare(theirs)

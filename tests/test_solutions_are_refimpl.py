"""What a learner is asked to write is the reference's own code: the two are compared as syntax trees."""

import ast
import importlib
import inspect
import textwrap
from pathlib import Path

import nbformat
import pytest

import refimpl

SOLUTIONS = sorted((Path(__file__).parents[1] / "solutions").glob("*/*.ipynb"))

# (notebook, class or function there) -> name in refimpl, where the two differ; "module:name" where it is no public one
RENAMED = {
    # A learner writes the order of eviction by scanning; refimpl's LRUEvictor keeps the same order in a faster way.
    ("04_cached_allocator", "LRUEvictor"): "PlainEvictor",
    # Chapter 9's functions in their plainest form; refimpl's cache does the same faster (tests/device).
    ("09_kv_cache_on_the_device", "num_gpu_blocks"): "device.plain_cache:num_gpu_blocks",
    ("09_kv_cache_on_the_device", "slot_mapping"): "device.plain_cache:slot_mapping",
    ("09_kv_cache_on_the_device", "reshape_and_cache"): "device.plain_cache:reshape_and_cache",
    ("09_kv_cache_on_the_device", "copy_blocks"): "device.plain_cache:copy_blocks",
    ("09_kv_cache_on_the_device", "swap_blocks"): "device.plain_cache:swap_blocks",
    # The engine without texts, metrics and a log, which serves the same tokens (tests/serving/test_plain_engine.py).
    ("11_serve_a_real_model", "Engine"): "serving.plain_engine:Engine",
    # What a person on call works out is no part of a serving system.
    ("12_tune_and_troubleshoot", "DecisionLog"): "simulation.diagnosis:DecisionLog",
    ("12_tune_and_troubleshoot", "LongestSlowest"): "simulation.diagnosis:LongestSlowest",
    ("12_tune_and_troubleshoot", "BlockSizes"): "simulation.diagnosis:BlockSizes",
    ("12_tune_and_troubleshoot", "BlockIndex"): "simulation.diagnosis:BlockIndex",
    # Chapter 10's functions in their plainest form; refimpl's attention does the same faster (tests/device).
    ("10_paged_attention", "gather"): "device.attention:gather",
    ("10_paged_attention", "attend"): "device.plain_attention:attend",
    ("10_paged_attention", "attend_in_blocks"): "device.plain_attention:attend_in_blocks",
    ("10_paged_attention", "merge_attention_states"): "device.plain_attention:merge_attention_states",
    ("10_paged_attention", "paged_attention"): "device.plain_attention:paged_attention",
    ("10_paged_attention", "decode_kernel"): "device.plain_kernel:decode_kernel",
}


def answers(nb):
    """The function of each answer cell, with the name of the class that it joins or None."""
    for cell in nb.cells:
        if cell.cell_type == "code" and cell.metadata.get("nbgrader", {}).get("solution"):
            (function,) = ast.parse(cell.source).body
            assert isinstance(function, ast.FunctionDef), f"{cell.id} holds more than one function"
            calls = [call for call in function.decorator_list if isinstance(call, ast.Call)]
            joined = [call.args[0].id for call in calls if ast.unparse(call.func) == "add_to_class"]
            yield joined[0] if joined else None, function


def reference(stem, class_name, name):
    """The syntax tree of a function of refimpl that answers a cell, or of a method of a class."""
    wanted = RENAMED.get((stem, class_name or name), class_name or name)
    if ":" in wanted:
        module, _, wanted = wanted.partition(":")
        found = getattr(importlib.import_module(f"refimpl.{module}"), wanted)
    else:
        assert wanted in refimpl.__all__, f"{wanted} is no public name of refimpl"
        found = getattr(refimpl, wanted)
    if class_name:
        found = inspect.unwrap(getattr(found, name))
    (function,) = ast.parse(textwrap.dedent(inspect.getsource(found))).body
    return function


def bare(function):
    """The syntax tree of a function, decorators and docstrings aside."""
    function.decorator_list = []
    for node in ast.walk(function):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node):
            del node.body[0]
    return ast.dump(function, indent=1)


def differing(nb, stem):
    """The answers of a notebook that are not refimpl's code, by name."""
    found = list(answers(nb))
    assert found, f"{stem} has no answer cell"
    return [
        f"{class_name}.{function.name}" if class_name else function.name
        for class_name, function in found
        if bare(function) != bare(reference(stem, class_name, function.name))
    ]


def test_there_are_solutions():
    assert SOLUTIONS


@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.stem)
def test_answers_equal_the_reference(path):
    assert differing(nbformat.read(path, as_version=4), path.stem) == []


@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.stem)
def test_a_changed_answer_is_noticed(path):
    """Each answer in turn loses its last statement."""
    nb = nbformat.read(path, as_version=4)
    for cell in nb.cells:
        if cell.cell_type == "code" and cell.metadata.get("nbgrader", {}).get("solution"):
            was = cell.source
            tree = ast.parse(was)
            tree.body[0].body[-1] = ast.parse("pass").body[0]
            cell.source = ast.unparse(tree)
            assert len(differing(nb, path.stem)) == 1, cell.id
            cell.source = was


def test_a_name_that_refimpl_keeps_to_itself_is_no_reference():
    with pytest.raises(AssertionError, match="_check_token_ids is no public name"):
        reference("02_block_table", None, "_check_token_ids")

"""Correct designs of another shape pass with full points, however they store, order, print or dawdle."""

from __future__ import annotations

import copy
import dataclasses
import functools
import logging
import os
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from learners import ROOT, allocate, allocator, free, share_block_table

from refimpl import UncachedBlockAllocator, proof
from refimpl.checks import CheckResult, steps
from refimpl.checks.engine import ENOUGH, TIME_LIMIT, examine

POOL_STEPS = ("03-allocate", "03-free")


def assert_full_points(result: CheckResult) -> None:
    assert result.outcome == "passed", str(result)
    assert float(repr(result)) == result.max_points


@pytest.mark.parametrize("path", proof.second_designs(ROOT), ids=lambda path: path.stem)
def test_a_design_of_another_shape_inherits_nothing_from_the_reference(path: Path) -> None:
    classes = [value for value in proof.load(path).values() if isinstance(value, type)]
    assert [cls for cls in classes if any(base.__module__.startswith("refimpl") for base in cls.__mro__)] == []


def shared(block: Any) -> Any:
    block.ref_count = block.ref_count + 1
    return block


class CallableShare:
    def __call__(self, block_table: list[Any]) -> list[Any]:
        return share_block_table(block_table)


SHARES: dict[str, Callable[[list[Any]], list[Any]]] = {
    "comprehension": lambda table: [shared(block) for block in table],
    "list": lambda table: list(map(shared, table)),
    "slice": lambda table: [shared(block) for block in table] and table[:],
    "star": lambda table: [*map(shared, table)],
    "backwards": lambda table: [shared(block) for block in reversed(table)][::-1],
    "copy.copy": lambda table: copy.copy([shared(block) for block in table]),
    "partial": functools.partial(share_block_table),
    "callable object": CallableShare(),
}


@pytest.mark.parametrize("share", SHARES.values(), ids=SHARES.keys())
def test_sharing_in_another_way_passes(share: Callable[[list[Any]], list[Any]]) -> None:
    assert_full_points(examine(steps()["03-share"], share))


def test_a_subclass_of_the_reference_with_a_free_of_its_own_passes() -> None:
    class Mine(UncachedBlockAllocator):
        free = free

    assert_full_points(examine(steps()["03-free"], Mine))


def test_a_wrapper_that_says_it_wraps_the_reference_but_calls_its_own_code_passes() -> None:
    @functools.wraps(UncachedBlockAllocator.allocate)
    def mine(self: Any, *_: Any) -> Any:
        return allocate(self)

    assert_full_points(examine(steps()["03-allocate"], allocator(allocate=mine)))


def test_what_right_code_says_meanwhile_costs_nothing_and_goes_nowhere(capfd: pytest.CaptureFixture[str]) -> None:
    handler = logging.StreamHandler(sys.stderr)  # holds the stream itself, as after logging.basicConfig()
    logger = logging.getLogger("learner")
    logger.addHandler(handler)

    def loud(self: Any, *_: Any) -> Any:
        print("x" * 10_000)
        print("to stderr", file=sys.stderr)
        os.write(1, b"to descriptor 1\n")
        os.write(2, b"to descriptor 2\n")
        print("to the first stderr", file=sys.__stderr__)
        warnings.warn("a warning", stacklevel=1)
        logger.warning("logged")
        return allocate(self)

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = lambda message, *_: print(message, file=sys.stderr)  # pytest would keep it
            result = examine(steps()["03-allocate"], allocator(allocate=loud))
        handler.flush()
        assert_full_points(result)
        assert capfd.readouterr() == ("", "")
        print("back")
        print("back", file=sys.stderr)
        assert capfd.readouterr() == ("back\n", "back\n")
    finally:
        logger.removeHandler(handler)


@pytest.mark.alone
def test_slow_code_that_is_right_passes_on_fewer_histories() -> None:
    def slow(self: Any, *_: Any) -> Any:
        time.sleep(0.001)
        return allocate(self)

    result = examine(steps()["03-allocate"], allocator(allocate=slow), time_limit=0.5)
    assert_full_points(result)


@pytest.mark.parametrize("exercise_id", POOL_STEPS)
def test_one_millisecond_a_call_leaves_time_for_all_histories(exercise_id: str) -> None:
    """All calls of one check fit into the half of the 10 s that histories get."""
    calls = 0

    def counted(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: Any, *args: Any) -> Any:
            nonlocal calls
            calls += 1
            return method(self, *args)

        return call

    step = dataclasses.replace(steps()[exercise_id], after=())
    methods = {
        "allocate": allocate,
        "free": free,
        "get_num_free_blocks": lambda self: len(self.free_blocks),
        "get_num_total_blocks": lambda self: self.num_blocks,
    }
    examine(step, allocator(**{name: counted(method) for name, method in methods.items()}))
    assert calls > 100
    assert calls * 0.001 < TIME_LIMIT * ENOUGH

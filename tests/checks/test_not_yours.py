"""refimpl's code handed over as an answer in ways that its own functions do not notice."""

import types

import refimpl
from refimpl.checks.catalogue import find
from refimpl.checks.engine import examine


def copied(function: types.FunctionType) -> types.FunctionType:
    return types.FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__)


def test_a_copy_of_refimpls_function_is_not_yours() -> None:
    result = examine(find("02-num-required-blocks"), copied(refimpl.num_required_blocks))
    assert (result.outcome, result.points) == ("not yours", 0.0)


def test_a_copy_of_refimpls_method_is_not_yours() -> None:
    class UncachedBlockAllocator(refimpl.UncachedBlockAllocator):
        free = copied(refimpl.UncachedBlockAllocator.free)  # type: ignore[arg-type]

    result = examine(find("03-free"), UncachedBlockAllocator)
    assert (result.outcome, result.points) == ("not yours", 0.0)

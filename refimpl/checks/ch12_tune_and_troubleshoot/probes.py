"""The thought behind a wrong answer, found by asking the learner's code what no two thoughts answer alike.

Probes are questions on the side; what they come to is compared and never counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from numbers import Real
from typing import Any

from refimpl.checks.step import equal
from refimpl.checks.thoughts import asked, only_one


def named(answers: Callable[[], list[Any]], theories: Iterable[tuple[str, list[Any]]]) -> str | None:
    """The thought behind a learner's answers: the one whose answers are the same, each of them.

    `answers` are asked for now, and may raise; several theories may share a name.
    """
    given = asked(answers)
    return None if given is None else only_one(name for name, wanted in theories if alike(given, wanted))


def alike(given: Any, wanted: Any) -> bool:
    """Whether the answer given is the one wanted: dictionaries without their zeros, fractions to within rounding."""
    if isinstance(wanted, list):
        return len(given) == len(wanted) and all(map(alike, given, wanted))
    if isinstance(wanted, dict):
        return isinstance(given, Mapping) and equal(_without_zeros(given), wanted)
    if isinstance(wanted, Fraction):
        is_number = isinstance(given, Real) and not isinstance(given, bool)
        return is_number and abs(float(given) - float(wanted)) <= 1e-9 * max(1.0, abs(float(wanted)))
    return equal(given, wanted) and not isinstance(given, bool)


def _without_zeros(found: Mapping[Any, Any]) -> dict[Any, Any]:
    """What was counted; a request counted with 0 might as well be left out."""
    return {name: number for name, number in found.items() if not equal(number, 0)}

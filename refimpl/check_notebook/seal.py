"""What cells must not exchange under the checks: refimpl's functions and classes, the steps of the chapter, Python's
built-in names, and what the checks use of its library.

Owns a picture of them taken before any cell runs, and puts back what has changed. It tells an accident and a simple
trick; code that is out to deceive the process that it runs in can change this, too.
"""

from __future__ import annotations

import builtins
import dataclasses
import json
import operator
import random
import sys
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

from refimpl.checks.step import Step

NOT_SEALED = {"input", "_"}  # the kernel itself exchanges these for each cell
USED = (builtins, json, dataclasses, operator, random)


class Seal:
    """refimpl's modules that are in memory, and those of Python that they use, as they are now.

    Args:
        steps: exercise id -> step, of the chapter that will be checked.

    >>> import math
    >>> seal, length = Seal({}), len
    >>> builtins.len = lambda things: 3
    >>> seal.mend(), len is length
    (['builtins.len'], True)
    >>> seal.mend()
    []
    """

    def __init__(self, steps: dict[str, Step]) -> None:
        self._steps = [
            (steps, name, step, {field: getattr(step, field) for field in _FIELDS}) for name, step in steps.items()
        ]
        self._bindings: list[tuple[Any, str, Any]] = []  # owner, name, what it is bound to
        self._codes: list[tuple[str, FunctionType, Any]] = []
        for module in [*USED, *_refimpl()]:
            for owner in (module, *_classes(module)):
                for name, value in list(vars(owner).items()):
                    if name not in NOT_SEALED and (callable(value) or isinstance(value, property | ModuleType)):
                        self._bindings.append((owner, name, value))
                    if isinstance(value, FunctionType) and value.__module__ == module.__name__:
                        self._codes.append((f"{module.__name__}.{value.__qualname__}", value, _state(value)))

    def mend(self) -> list[str]:
        """Put back what has changed since; its names, such as "refimpl.checks.engine.examine"."""
        changed = []
        for owner, name, value in self._bindings:
            if vars(owner).get(name) is not value:
                setattr(owner, name, value)
                changed.append(f"{_path(owner)}.{name}")
        for name, function, state in self._codes:
            if _state(function) != state:
                function.__code__, function.__defaults__, function.__kwdefaults__ = state
                changed.append(name)
        for steps, name, step, fields in self._steps:
            if steps.get(name) is not step or any(getattr(step, field) is not value for field, value in fields.items()):
                steps[name] = step
                for field, value in fields.items():
                    object.__setattr__(step, field, value)
                changed.append(f"the step {name}")
        return changed


_FIELDS = tuple(field.name for field in dataclasses.fields(Step))


def _refimpl() -> list[ModuleType]:
    return [module for name, module in list(sys.modules.items()) if name.partition(".")[0] == "refimpl"]


def _classes(module: ModuleType) -> Iterator[type]:
    """The classes that a module defines itself."""
    if module not in USED:
        yield from (c for c in vars(module).values() if isinstance(c, type) and c.__module__ == module.__name__)


def _state(function: FunctionType) -> tuple[Any, Any, Any]:
    return function.__code__, function.__defaults__, function.__kwdefaults__


def _path(owner: Any) -> str:
    return f"{owner.__module__}.{owner.__qualname__}" if isinstance(owner, type) else str(owner.__name__)

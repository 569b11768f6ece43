"""What cells must not exchange under the checks: refimpl's functions and classes, and Python's built-in names.

Owns a picture of them taken before any cell runs, and puts back what has changed. It tells an accident and a simple
trick; code that is out to deceive the process that it runs in can change this, too.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

NOT_SEALED = {"input", "_"}  # the kernel itself exchanges these for each cell


class Seal:
    """refimpl's modules that are in memory, and `builtins`, as they are now.

    >>> import math
    >>> seal, length = Seal(), len
    >>> builtins.len = lambda things: 3
    >>> seal.mend(), len is length
    (['builtins.len'], True)
    >>> seal.mend()
    []
    """

    def __init__(self) -> None:
        self._bindings: list[tuple[Any, str, Any]] = []  # owner, name, what it is bound to
        self._codes: list[tuple[str, FunctionType, Any]] = []
        for module in [builtins, *_refimpl()]:
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
        return changed


def _refimpl() -> list[ModuleType]:
    return [module for name, module in list(sys.modules.items()) if name.partition(".")[0] == "refimpl"]


def _classes(module: ModuleType) -> Iterator[type]:
    """The classes that a module defines itself."""
    if module is not builtins:
        yield from (c for c in vars(module).values() if isinstance(c, type) and c.__module__ == module.__name__)


def _state(function: FunctionType) -> tuple[Any, Any, Any]:
    return function.__code__, function.__defaults__, function.__kwdefaults__


def _path(owner: Any) -> str:
    return f"{owner.__module__}.{owner.__qualname__}" if isinstance(owner, type) else str(owner.__name__)

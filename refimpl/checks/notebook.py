"""What an exercise notebook needs besides `check`: adding one method at a time to a class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


def add_to_class(cls: type) -> Callable[[Function], Function]:
    """Decorator: the function below becomes a method of `cls`, replacing one of the same name.

    Raises:
        ValueError: when `cls` is refimpl's own, which would change the reference for the whole kernel.

    >>> class Counter:
    ...     __module__, value = "__main__", 0
    >>> @add_to_class(Counter)
    ... def up(self):
    ...     self.value += 1
    >>> counter = Counter()
    >>> counter.up()
    >>> counter.value
    1
    """
    if cls.__module__.partition(".")[0] == "refimpl":
        raise ValueError(f"{cls.__name__} is refimpl's own class: run the cell above that defines yours, then this one")

    def attach(function: Function) -> Function:
        setattr(cls, function.__name__, function)
        return function

    return attach

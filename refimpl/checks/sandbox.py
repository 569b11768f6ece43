"""The room a learner's code runs in during a check: a time limit, no output, and no reference to lean on.

It keeps accidents from spoiling a notebook; it is no security boundary.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

Result = TypeVar("Result")

PRINTED_LIMIT = 2000  # characters kept of what the learner's code prints


class OutOfTime(Exception):
    """The limit passed. `stopped` says whether the code could be stopped or still runs in its thread."""

    def __init__(self, stopped: bool) -> None:
        super().__init__("out of time")
        self.stopped = stopped


class _Stop(BaseException):
    """Thrown into a thread that has run out of time."""


def within(seconds: float, function: Callable[[], Result]) -> Result:
    """`function()`, run in a thread that is stopped after `seconds`.

    A thread, because a signal would need the main thread of a Unix process and a process could not be handed a class
    that exists in a notebook only. A loop that catches everything survives being stopped: the caller goes on anyway.

    Raises:
        OutOfTime: when it did not return; whatever `function` raises otherwise.
    """
    results: list[Result] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            results.append(function())
        except BaseException as error:  # noqa: BLE001  (handed on to the caller below)
            errors.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        thread.join(seconds)
    finally:  # also when the learner interrupts the kernel
        alive = thread.is_alive()
        stopped = not alive or _stop(thread)
    if alive:
        raise OutOfTime(stopped)
    if errors:
        raise errors[0]
    return results[0]


def _stop(thread: threading.Thread, patience: float = 0.5) -> bool:
    """Throw `_Stop` into the thread until it ends; False when it would not."""
    give_up = time.monotonic() + patience
    while thread.is_alive() and time.monotonic() < give_up:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(_Stop))
        thread.join(0.02)
    return not thread.is_alive()


class _FirstCharacters(io.TextIOBase):
    """Keeps the first characters written to it and drops the rest."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> int:
        if len(self.text) < PRINTED_LIMIT:
            self.text = (self.text + text)[:PRINTED_LIMIT]
        return len(text)


@contextlib.contextmanager
def silence() -> Iterator[_FirstCharacters]:
    """Nothing reaches stdout or stderr, at descriptor level neither for stderr; yields what was printed.

    nbgrader gives no marks to a cell with anything on stderr, be the answer right or not.
    """
    printed = _FirstCharacters()
    with contextlib.ExitStack() as stack:
        saved = os.dup(2)
        stack.callback(os.close, saved)
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        stack.callback(os.dup2, saved, 2)
        stack.enter_context(contextlib.redirect_stdout(printed))
        stack.enter_context(contextlib.redirect_stderr(printed))
        yield printed
        sys.stderr.flush()


def _refused(*args: Any, **kwargs: Any) -> Any:
    from refimpl.checks.step import NotYours

    raise NotYours


@contextlib.contextmanager
def refused(functions: Iterable[Any]) -> Iterator[None]:
    """While this lasts, calling one of refimpl's `functions` raises NotYours, by whatever name it is reached.

    The code inside the function is exchanged, not the name that leads to it: a learner's wrapper or subclass holds
    the function itself.
    """
    with contextlib.ExitStack() as stack:
        for function in functions:
            stack.callback(setattr, function, "__code__", function.__code__)
            function.__code__ = _refused.__code__
        yield

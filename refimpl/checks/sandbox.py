"""The room a learner's code runs in during a check: a time limit, no output, and no reference to lean on.

It keeps accidents from spoiling a notebook and is no security boundary. What it changes (streams, refimpl's functions)
belongs to the whole process, so one check is in the room at a time, and all of it is put back on the way out.
"""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

Result = TypeVar("Result")

PRINTED_LIMIT = 2000  # characters kept of what the learner's code prints
PATIENCE = 1.0  # seconds in which a thread that has run out of time may end
THREAD = "a learner's code, with a time limit"


class OutOfTime(Exception):
    """The limit passed. `stopped` says whether the code could be stopped or still runs in its thread."""

    def __init__(self, stopped: bool) -> None:
        super().__init__("out of time")
        self.stopped = stopped


class Stop(BaseException):
    """Thrown into a thread that has run out of time."""


class NotYours(BaseException):
    """refimpl's own answer was called. Not an Exception, so that no `except Exception` on the way swallows it."""


class Room:
    """What a check hears of the code that ran in the room."""

    def __init__(self) -> None:
        self.printed = ""
        self.not_yours = False  # also when the learner's code caught NotYours

    def write(self, text: str) -> int:
        """Keep the first characters and drop the rest; returns how many were written, as a stream does."""
        self.printed += text[: PRINTED_LIMIT - len(self.printed)]
        return len(text)


_rooms: list[Room] = []  # the room in use, if any
_one_at_a_time = threading.Lock()


@contextlib.contextmanager
def room(reference: Iterable[Any]) -> Iterator[Room]:
    """Nothing reaches stdout or stderr, nothing is read, and refimpl's `reference` functions refuse to run."""
    with _one_at_a_time, contextlib.ExitStack() as stack:
        here = Room()
        _rooms.append(here)
        stack.callback(_rooms.pop)
        stack.enter_context(_nowhere())
        for stream in filter(None, {sys.stdout, sys.stderr}):
            _divert(stream, here, stack)
        for function in reference:
            _refuse(function, stack)
        stack.callback(setattr, builtins, "input", builtins.input)
        builtins.input = _no_input
        yield here


@contextlib.contextmanager
def _nowhere() -> Iterator[None]:
    """What is written to the descriptors of stdout and stderr is dropped: by a library in C, say.

    nbgrader gives no marks to a cell with anything on stderr, be the answer right or not.
    """
    _flush()
    saved = [(descriptor, os.dup(descriptor)) for descriptor in (1, 2)]
    try:
        with open(os.devnull, "w") as nowhere:
            for descriptor, _ in saved:
                os.dup2(nowhere.fileno(), descriptor)
        yield
    finally:
        _flush()
        for descriptor, copy in saved:
            os.dup2(copy, descriptor)
            os.close(copy)


def _no_input(prompt: object = "") -> str:
    """In place of `input`, which would wait for an answer that nobody can give."""
    raise RuntimeError("nobody answers input() during a check")


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # there is none, or it is closed
            stream.flush()  # type: ignore[union-attr]


def _divert(stream: Any, here: Room, stack: contextlib.ExitStack) -> None:
    """Exchange the stream's `write`, not the name that leads to it: a logging handler holds the stream itself."""
    stack.callback(setattr, stream, "write", stream.write)
    stream.write = here.write


def _refuse(function: Any, stack: contextlib.ExitStack) -> None:
    """Exchange the function's code, not the name that leads to it: a wrapper or subclass holds the function itself."""
    stack.callback(setattr, function, "__code__", function.__code__)
    function.__code__ = _refused.__code__


def _refused(*args: Any, **kwargs: Any) -> Any:
    from refimpl.checks import sandbox  # runs inside another module's function, which has none of these names

    for here in sandbox._rooms:
        here.not_yours = True
    raise sandbox.NotYours


def within(seconds: float, function: Callable[[], Result]) -> Result:
    """`function()`, run in a thread that is stopped after `seconds`.

    A thread, because a signal would need the main thread of a Unix process and a process could not be handed a class
    that exists in a notebook only. Code that cannot be stopped is left running, and the caller goes on anyway.

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

    thread = threading.Thread(target=work, name=THREAD, daemon=True)
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


def _stop(thread: threading.Thread) -> bool:
    """Throw `Stop` into the thread until it ends; False when it would not.

    Again and again, because a loop may catch everything: sooner or later one meets it in its `except`.
    """
    give_up = time.monotonic() + PATIENCE
    while thread.is_alive() and time.monotonic() < give_up:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(Stop))
        thread.join(0.003)
    return not thread.is_alive()

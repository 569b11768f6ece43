"""A class with some of its parts exchanged: its methods find other names where they would find refimpl's globals.

A learner's manager calls `share_block_table`, and so does the reference's; which function that is, is decided here.
Code is never changed, and a class or function keeps its code object, so that a traceback still leads to its author.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

_PACKAGE = str(Path(__file__).parents[1])


def is_refimpls(part: Any) -> bool:
    """Whether nothing in a class or function was written by anybody else."""
    return not any(True for _ in own_code(part))


def own_code(part: Any) -> Iterator[CodeType]:
    """The code of a function, or of all functions of a class, that does not lie in refimpl."""
    members = [part]
    if isinstance(part, type):
        members = [member for cls in part.__mro__ for member in vars(cls).values()]
    for member in members:
        member = getattr(member, "fget", None) or getattr(member, "__func__", member)
        code = getattr(inspect.unwrap(member) if callable(member) else member, "__code__", None)
        if isinstance(code, CodeType) and not code.co_filename.startswith(_PACKAGE):
            yield code


def completed(cls: type, questions: type) -> type:
    """The class, with the methods of `questions` that it lacks."""
    lacking = {name: member for name, member in vars(questions).items() if not hasattr(cls, name)}
    return type(cls.__name__, (cls,), lacking) if lacking else cls


def with_names(cls: type, names: Mapping[str, Any]) -> type:
    """The class, its methods finding `names` where they would find refimpl's globals of these names."""
    changed: dict[str, Any] = {}
    for name in dir(cls):
        member = inspect.getattr_static(cls, name)
        if isinstance(member, FunctionType):
            found = {
                key: value
                for key, value in names.items()
                if key in _names_in(member.__code__) and _is_from_refimpl(member.__globals__.get(key))
            }
            if found:
                changed[name] = _rebound(member, found)
    return type(cls.__name__, (cls,), changed) if changed else cls


def _names_in(code: CodeType) -> set[str]:
    """Every name that the code asks for, in functions inside it as well."""
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return set(code.co_names).union(*map(_names_in, inner))


def _is_from_refimpl(value: Any) -> bool:
    return str(getattr(value, "__module__", "")).partition(".")[0] == "refimpl"


def _rebound(function: FunctionType, names: Mapping[str, Any]) -> FunctionType:
    """The same function over other globals."""
    known = {**function.__globals__, **names}
    copy = FunctionType(function.__code__, known, function.__name__, function.__defaults__, function.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__dict__.update(function.__dict__)
    return copy

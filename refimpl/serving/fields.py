"""Numbers out of a model's description of itself, each checked before anything is computed with it.

A description is a mapping that somebody else has written, config.json or the metadata of a GGUF file. Errors carry the
name under which the value stands there; the readers add the file.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any


def positive_int(fields: Mapping[str, Any], name: str, default: int | None = None) -> int:
    """A field that counts something.

    Args:
        fields: the description.
        name: of the field.
        default: where the field is absent or None.

    Raises:
        KeyError: for a field that is absent and has no default.
        ValueError: for anything but an int of 1 or more.

    >>> positive_int({"num_attention_heads": 9}, "num_attention_heads")
    9
    """
    value = _value(fields, name, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} is {value!r}, it must be an integer of 1 or more")
    return value


def positive_number(fields: Mapping[str, Any], name: str, default: float | None = None) -> float:
    """A field that measures something: as `positive_int`, for a finite number above 0."""
    value = _value(fields, name, default)
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value <= sys.float_info.max:
        raise ValueError(f"{name} is {value!r}, it must be a finite number above 0")
    return float(value)


def _value(fields: Mapping[str, Any], name: str, default: float | None) -> Any:
    value = default if fields.get(name) is None else fields[name]
    if value is None:
        raise KeyError(name)
    return value

"""Every exercise step of the course, in course order.

A chapter is loaded when one of its steps is asked for: the checks of chapters 9 and later need torch, and those before
them must not.
"""

from __future__ import annotations

import difflib
import importlib
from functools import cache

from refimpl.checks.step import Step

CHAPTERS = (  # modules beside this one, in course order
    "ch00_start_here",
    "ch01_physical_token_block",
    "ch02_block_table",
    "ch03_uncached_allocator",
    "ch04_cached_allocator",
    "ch05_can_allocate",
    "ch06_append_slots",
    "ch07_swap",
    "ch08_scheduler",
    "ch09_kv_cache_on_the_device",
    "ch10_paged_attention",
    "ch11_serve_a_real_model",
    "ch12_tune_and_troubleshoot",
)


@cache
def chapter_steps(number: str) -> dict[str, Step]:
    """The steps of a chapter such as "03", by exercise id; none for a chapter without any.

    Raises:
        ModuleNotFoundError: when the chapter needs what is not installed.
    """
    modules = [importlib.import_module(f"{__package__}.{name}") for name in CHAPTERS if name.startswith(f"ch{number}_")]
    return {step.exercise_id: step for module in modules for step in module.STEPS}


def chapter_numbers() -> list[str]:
    """The numbers of the chapters that have steps."""
    return [name[2:4] for name in CHAPTERS]


@cache
def steps() -> dict[str, Step]:
    """Exercise id -> step, in course order; raises what `chapter_steps` raises."""
    return {exercise_id: step for number in chapter_numbers() for exercise_id, step in chapter_steps(number).items()}


def find(exercise_id: str) -> Step:
    """The step of this id.

    Raises:
        ValueError: for an unknown id, with the nearest one that exists.
    """
    known = chapter_steps(str(exercise_id)[:2])
    if exercise_id not in known:
        near = difflib.get_close_matches(str(exercise_id), known or steps(), n=1, cutoff=0.0)[0]
        raise ValueError(f"there is no exercise {exercise_id!r}; did you mean {near!r}?")
    return known[exercise_id]

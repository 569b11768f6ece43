"""Every exercise step of the course, in course order."""

from __future__ import annotations

import difflib
from functools import cache

from refimpl.checks import (
    ch00_start_here,
    ch01_physical_token_block,
    ch02_block_table,
    ch03_uncached_allocator,
    ch04_cached_allocator,
    ch05_can_allocate,
    ch06_append_slots,
    ch07_swap,
    ch09_kv_cache_on_the_device,
    ch12_tune_and_troubleshoot,
)
from refimpl.checks.step import Step

CHAPTERS = (
    ch00_start_here,
    ch01_physical_token_block,
    ch02_block_table,
    ch03_uncached_allocator,
    ch04_cached_allocator,
    ch05_can_allocate,
    ch06_append_slots,
    ch07_swap,
    ch09_kv_cache_on_the_device,
    ch12_tune_and_troubleshoot,
)


@cache
def steps() -> dict[str, Step]:
    """Exercise id -> step, in course order."""
    return {step.exercise_id: step for chapter in CHAPTERS for step in chapter.STEPS}


def find(exercise_id: str) -> Step:
    """The step of this id.

    Raises:
        ValueError: for an unknown id, with the nearest one that exists.
    """
    known = steps()
    if exercise_id not in known:
        near = difflib.get_close_matches(str(exercise_id), known, n=1, cutoff=0.0)[0]
        raise ValueError(f"there is no exercise {exercise_id!r}; did you mean {near!r}?")
    return known[exercise_id]

"""What learners hand in: the solved exercise of any chapter, each time anew, whole or with parts exchanged."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from refimpl import proof
from refimpl.checks.step import Step
from refimpl.proof import Chapter

ROOT = Path(__file__).parents[2]


@cache
def chapter(number: str) -> Chapter:
    """A chapter's exercise; every call of its methods makes everything in it anew."""
    return Chapter(ROOT, number)


def chapter_of(step: Step) -> Chapter:
    return chapter(step.exercise_id.partition("-")[0])


def subject(step: Step, /, **answers: Callable[..., Any]) -> Any:
    """What a learner passes to this step's check: solved, or with these answers in place of what the step asks for."""
    solved = chapter_of(step).solution()
    return proof.mutated(step, solved, answers) if answers else proof.subject(step, solved)


def answered(step: Step, answer: Callable[..., Any]) -> Any:
    """The subject with `answer` in place of everything that the step asks for."""
    return subject(step, **dict.fromkeys(step.asks_for, answer))


def allocator(**methods: Any) -> type:
    """A new allocator of chapter 3, solved; `methods` replace the good ones, and None takes one away."""
    solved = chapter("03").solution()["UncachedBlockAllocator"]
    for name, method in methods.items():
        setattr(solved, name, method) if method is not None else delattr(solved, name)
    assert isinstance(solved, type)
    return solved


_CHAPTER_3 = chapter("03").solution()
allocate, free, share_block_table = (_CHAPTER_3[name] for name in ("allocate", "free", "share_block_table"))

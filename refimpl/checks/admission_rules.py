"""Which wrong inequality of chapter 05 gives which answers to a series of questions.

The series is put to a pool of 8 blocks of 3 tokens with a watermark of 2. No two names stand for the same answers to
all of it, so the answers of a class tell its rule; a rule that is not listed here has no name.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import product

TOTAL, RESERVED, BLOCK_SIZE = 8, 2, 3
FREE, TOKENS = (8, 5, 2), range(1, 28)

Test = Callable[[int, int], bool]  # required blocks, blocks that are there
Answers = tuple[str, ...]  # to the series: for each of FREE, a prompt of each of TOKENS


def _leaves_less(required: int, blocks: int) -> bool:
    return required + RESERVED > blocks


def _leaves_no_more(required: int, blocks: int) -> bool:
    return required + RESERVED >= blocks


def _needs_more(required: int, blocks: int) -> bool:
    return required > blocks


OF_NEVER: dict[str, Test] = {  # what is asked of the pool, by the name of the slip
    "": _leaves_less,
    "later-for-never": lambda required, blocks: False,
    "watermark-not-in-never": _needs_more,
    "never-one-too-early": _leaves_no_more,
}
OF_OK: dict[str, Test] = {  # what is asked of the free blocks
    "": _leaves_less,
    "watermark-not-in-ok": _needs_more,
    "exactly-is-not-enough": _leaves_no_more,
}
COUNTS: dict[str, Callable[[int], int]] = {  # blocks of so many tokens
    "room-for-the-next-token": lambda num_tokens: _blocks(num_tokens + 1),
    "tokens-for-blocks": lambda num_tokens: num_tokens,
    "last-block-not-counted": lambda num_tokens: num_tokens // BLOCK_SIZE,
}


def _blocks(num_tokens: int) -> int:
    return len(range(0, num_tokens, BLOCK_SIZE))


def _answers(
    never: Test, not_now: Test, fits_first: bool = False, count: Callable[[int], int] = _blocks, no: str = "LATER"
) -> Answers:
    """What a rule answers to the series; `no` is its word for those who do not fit now."""

    def answer(required: int, free: int) -> str:
        fits = not not_now(required, free)
        if fits_first and fits:
            return "OK"
        return "NEVER" if never(required, TOTAL) else "OK" if fits else no

    return tuple(answer(count(num_tokens), free) for free in FREE for num_tokens in TOKENS)


@cache
def slips() -> dict[Answers, tuple[str, str]]:
    """Answers to the series -> the slips that give them: about the pool, about the free blocks; "" for none."""
    found = {}
    for (of_never, never), (of_ok, not_now), first in product(OF_NEVER.items(), OF_OK.items(), (True, False)):
        found[_answers(never, not_now, first)] = (of_never, of_ok)
    whole = {name: _answers(_leaves_less, _leaves_less, count=count) for name, count in COUNTS.items()}
    whole |= {
        "never-for-later": _answers(_leaves_less, _leaves_less, no="NEVER"),
        "watermark-nowhere": _answers(_needs_more, _needs_more),
        "one-block-more": _answers(_leaves_no_more, _leaves_no_more),
    }
    return found | {answers: (name, name) for name, answers in whole.items()}

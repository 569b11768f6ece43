"""05-watermark: how many blocks are kept back.

A wrong number is named by what the function says of other pools.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from functools import cached_property
from typing import Any

from refimpl.block_manager import num_watermark_blocks
from refimpl.checks.admission_world import is_number
from refimpl.checks.manager_comparison import Facts
from refimpl.checks.step import History, Operation, Setup, Step, World, equal, show
from refimpl.checks.thoughts import asked, returns

CUT_OFF = "the product is cut off after the point"
WHOLE = "the result is an int"
REFUSES_SHARES = "a share that is negative or not finite is refused with ValueError"

SHARES = (0.0, 0.01, 0.05, 0.1, 0.25, 0.29, 0.5, 0.57, 0.9, 1.0, 1.5)
BAD_SHARES = (-0.1, -0.001, -1.0, math.inf, -math.inf, math.nan)


class _WatermarkWorld(World):
    """A function of a share and a number of blocks; each operation is one call."""

    @cached_property
    def always_raises(self) -> bool:
        """Whether it raises for an everyday share too, so that no error of its own is about the odd ones."""
        return not returns(self.subject, 0.5, 100)

    def choices(self) -> Iterable[Operation]:
        most = self.setup["num_gpu_blocks"]
        for num_blocks in (most // 2, most):
            yield from (("num_watermark_blocks", share, num_blocks) for share in SHARES)
            yield from (("num_watermark_blocks", share, num_blocks) for share in BAD_SHARES)

    def _num_watermark_blocks(self, share: float, num_blocks: int) -> None:
        line = f"num_watermark_blocks({_share(share)}, {num_blocks})"
        facts: Facts = {"share": _share(share), "num_blocks": num_blocks}
        if not 0 <= share < math.inf:
            returned = "negative-accepted" if share < 0 else "not-finite-accepted"
            other = None if self.always_raises else "other-error" if share < 0 else "infinite-other-error"
            self.log.refuse(
                REFUSES_SHARES, line, self.subject, share, num_blocks, returned=returned, other_error=other, **facts
            )
            return
        of_pool = share * num_blocks
        expected = sum(1 for whole in range(1, 3 * num_blocks + 1) if whole <= of_pool)
        said = f"{of_pool:.6g}"
        facts["product"] = f"a little less than {said}" if said == str(expected + 1) else said
        facts["expected"] = expected
        refused = "zero-refused" if share == 0 else "above-one-refused" if share >= 1 else ""
        refused = "" if self.always_raises or not num_blocks else refused
        got = self.log.call(line, self.subject, share, num_blocks, raises=(ValueError, refused), **facts)
        facts["got"] = show(got)
        name = None if equal(got, expected) else self._fault(got, expected, of_pool)
        self.log.expect(CUT_OFF, "the result", got, expected, name, **facts)
        should, but, is_whole = f"it should return the int {expected}", f"it returned {show(got)}", is_number(got)
        name = None if is_whole else self._not_whole()
        self.log.hold(WHOLE, is_whole, should, but, name, **facts)

    def _not_whole(self) -> str | None:
        """The misconception behind a right number of the wrong type; none where a share would show it better."""
        of_1_3 = asked(self.subject, 0.01, 130)
        return None if isinstance(of_1_3, float) and of_1_3 % 1 else "not-an-int"

    def _fault(self, got: Any, expected: int, of_pool: float) -> str | None:
        """The misconception behind a wrong number, told by what the function says of other pools."""
        if got is None:
            return "nothing-returned"
        if equal(got, of_pool):
            return "not-cut-off"
        if equal(asked(self.subject, 0.9, 1000), 9):
            return "percent"
        if not equal(got, expected + 1):
            return None
        for num_blocks, more, name in ((130, 2, "rounded-up"), (199, 2, "rounded"), (30, 1, "at-least-one")):
            if equal(asked(self.subject, 0.01, num_blocks), more):
                return name
        return "float-mended" if of_pool > expected + 0.99 else None


def _share(share: float) -> str:
    """A share as the learner would write it."""
    if math.isnan(share):
        return "math.nan"
    return f"{'-' * (share < 0)}math.inf" if math.isinf(share) else repr(share)


def _shares(*calls: tuple[float, int]) -> History:
    return History.of({"num_gpu_blocks": 100}, *(("num_watermark_blocks", *call) for call in calls))


def _a_pool(rng: random.Random) -> Setup:
    return {"num_gpu_blocks": rng.choice((1, 2, 10, 64, 99, 100, 120, 199, 200))}


STEP = Step(
    exercise_id="05-watermark",
    title="how many blocks are kept back",
    points=2,
    subject="num_watermark_blocks",
    reference=(num_watermark_blocks,),
    properties=(CUT_OFF, WHOLE, REFUSES_SHARES),
    misconceptions={
        "nothing-returned": "Whoever asks needs the number: yours returned None.",
        "not-cut-off": "Blocks are kept back whole or not at all: {share} of {num_blocks} is {product}, and what "
        "comes after the point is cut off, which leaves {expected}.",
        "rounded": "The product is cut off and not rounded: {share} of {num_blocks} is {product}, which makes "
        "{expected}, and yours says {got}.",
        "rounded-up": "What is left of a block at the end is not kept back: {share} of {num_blocks} is {product}, "
        "which makes {expected}, and yours says {got}.",
        "at-least-one": "A small pool keeps nothing back, and nobody makes up for it: {share} of {num_blocks} is "
        "{product}, which makes {expected}, and yours says {got}.",
        "float-mended": "The product is cut off as the float has it: {share} of {num_blocks} is {product}, so vLLM "
        "keeps {expected} back, and yours says {got}.",
        "percent": "The share is of 1 and not of 100: {share} of {num_blocks} blocks is {product}, and yours says "
        "{got}.",
        "not-an-int": "Blocks are counted in whole numbers, and their type is int: yours returned {got}.",
        "negative-accepted": "Less than nothing cannot be kept back: a share of {share} is refused with "
        "ValueError, however small the number of blocks that it would make.",
        "not-finite-accepted": "A share of {share} is no share of anything: refuse it with ValueError.",
        "infinite-other-error": "A share of {share} is refused with ValueError, raised on purpose: yours ran into "
        "{error}.",
        "other-error": "The error for a share below 0 is ValueError, since that is what a caller waits for: yours "
        "raised {error}.",
        "zero-refused": "A share of 0 is a policy, whoever fits comes in, and it makes 0 blocks: yours raised {error}.",
        "above-one-refused": "A share of 1 or more is allowed, such a pool admits nobody and says so: {share} of "
        "{num_blocks} is {expected} blocks, and yours raised {error}.",
    },
    world=_WatermarkWorld,
    examples=(
        _shares((0.01, 1000), (0.01, 64), (0.29, 100), (-0.01, 100)),
        _shares((0.01, 1), (0.01, 99), (0.01, 100), (0.01, 199)),
        _shares((0.0, 100), (1.0, 100), (1.5, 100), (0.5, 0)),
        _shares((2.5, 100), (0.001, 900), (0.001, 1000)),
        _shares((math.inf, 100), (math.nan, 100), (-math.inf, 100), (-0.001, 64)),
    ),
    setups=_a_pool,
)

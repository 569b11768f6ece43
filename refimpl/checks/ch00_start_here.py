"""Chapter 00: one toy step, so that a learner meets a check within five minutes."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

from refimpl.checks.step import History, Log, Operation, Setup, Step, World

DIFFERENCE = "wasted is what was reserved and not used"
NOTHING_WASTED = "a request that fills its reservation wastes nothing"


class _WasteWorld(World):
    """A function of two numbers; each operation is one call."""

    def __init__(self, subject: Any, setup: Setup, log: Log) -> None:
        self.function, self.log, self.most = subject, log, setup["max_model_len"]

    def choices(self) -> Iterable[Operation]:
        return [("waste", self.most, used) for used in {1, self.most // 3, self.most - 1, self.most} if used > 0]

    def possible(self, operation: Operation) -> bool:
        return True

    def perform(self, operation: Operation) -> None:
        _, reserved, used = operation
        got = self.log.call(f"wasted_slots({reserved}, {used})", self.function, reserved, used)
        misconception = None
        if got is None:
            misconception = "nothing-returned"
        elif got == used:
            misconception = "used-is-not-wasted"
        elif got == reserved:
            misconception = "all-of-it-is-not-wasted"
        elif got == reserved + used:
            misconception = "added"
        name = NOTHING_WASTED if reserved == used else DIFFERENCE
        self.log.expect(
            name, "the result", got, reserved - used, misconception, reserved=reserved, used=used, got=got
        )


STEPS = (
    Step(
        exercise_id="00-first-check",
        title="slots reserved and never used",
        points=1,
        subject="wasted_slots",
        writes=(),
        needs=(),
        reference=(),
        properties=(DIFFERENCE, NOTHING_WASTED),
        misconceptions={
            "nothing-returned": "A function answers with `return`: yours returned None.",
            "used-is-not-wasted": "The slots that hold tokens are the useful ones: of {reserved} reserved slots {used} "
            "hold tokens, and you called just those wasted.",
            "all-of-it-is-not-wasted": "Not everything that was reserved is wasted: {used} of the {reserved} slots "
            "hold tokens.",
            "added": "The tokens lie inside the reservation, not beside it: you added {used} to {reserved}.",
        },
        world=_WasteWorld,
        examples=(
            History({"max_model_len": 2048}, (("waste", 2048, 35),)),
            History({"max_model_len": 4}, (("waste", 4, 1), ("waste", 4, 4), ("waste", 4, 0))),
        ),
        setups=lambda rng: {"max_model_len": rng.randint(2, 4096)},
    ),
)

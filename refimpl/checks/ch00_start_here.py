"""Chapter 00: one toy step, so that a learner meets a check within five minutes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from refimpl.checks.step import History, Operation, Step, World, equal, show

DIFFERENCE = "wasted is what was reserved and not used"
NOTHING_WASTED = "a request that fills its reservation wastes nothing"


class _WasteWorld(World):
    """A function of two numbers; each operation is one call."""

    def choices(self) -> Iterable[Operation]:
        most = self.setup["max_model_len"]
        return [("wasted_slots", most, used) for used in (0, 1, most // 3, most - 1, most)]

    def _wasted_slots(self, reserved: int, used: int) -> None:
        got = self.log.call(f"wasted_slots({reserved}, {used})", self.subject, reserved, used)
        self.log.expect(
            NOTHING_WASTED if reserved == used else DIFFERENCE,
            "the result",
            got,
            reserved - used,
            _fault(got, reserved, used),
            reserved=reserved,
            used=used,
            wasted=reserved - used,
            got=show(got),
        )


def _fault(got: Any, reserved: int, used: int) -> str | None:
    """The misconception behind a wrong answer."""
    wasted = reserved - used
    if not 0 < used < reserved and got is not None:
        return None  # several thoughts give the same answer here
    answers = {
        "nothing-returned": (None,),
        "used-is-not-wasted": (used,),
        "all-of-it-is-not-wasted": (reserved,),
        "added": (reserved + used,),
        "the-wrong-way-round": (-wasted,),
        "a-share": (used / reserved, wasted / reserved, 100 * used / reserved, 100 * wasted / reserved),
    }
    return next((name for name, values in answers.items() if any(equal(got, value) for value in values)), None)


STEPS = (
    Step(
        exercise_id="00-first-check",
        title="slots reserved and never used",
        points=1,
        subject="wasted_slots",
        reference=(),
        properties=(DIFFERENCE, NOTHING_WASTED),
        misconceptions={
            "nothing-returned": "A function answers with `return`, and a printed number is not an answer: yours "
            "returned None.",
            "used-is-not-wasted": "Used slots are not wasted: of {reserved} reserved slots {used} hold tokens, so "
            "{wasted} are wasted, not {used}.",
            "all-of-it-is-not-wasted": "Not everything that was reserved is wasted: of {reserved} slots {used} hold "
            "tokens, so {wasted} are wasted, not {reserved}.",
            "added": "The tokens lie inside the reservation, not beside it: take {used} away from {reserved} instead "
            "of adding it.",
            "the-wrong-way-round": "What is wasted is left over when the used slots are taken away from the reserved "
            "ones: yours takes {reserved} from {used} and says {got}.",
            "a-share": "Wasted slots are counted, not measured as a share: {wasted} of the {reserved} slots are "
            "wasted, and yours says {got}.",
        },
        world=_WasteWorld,
        examples=(
            History.read({"max_model_len": 2048}, "wasted_slots 2048 35"),
            History.read({"max_model_len": 4}, "wasted_slots 4 1", "wasted_slots 4 4", "wasted_slots 4 0"),
        ),
        setups=lambda rng: {"max_model_len": rng.randint(2, 4096)},
    ),
)

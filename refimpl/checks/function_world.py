"""A function of lengths, or of a block table, and a block size: what chapter 02 plays histories on."""

from __future__ import annotations

import random
from typing import Any

from refimpl.checks.step import History, Log, Operation, Setup
from refimpl.checks.thoughts import TELLING, TellingWorld

USUAL = 16  # the block size of the worked examples; with a smaller one, the thought to tell is that it is fixed
SIZES = (1, 2, 3, 4, 8, 16, 32)


def opened(num_tokens: int, block_size: int) -> int:
    """How many of the tokens open a block, when they come one at a time: the 0th, the block_size-th, and so on."""
    return len(range(0, num_tokens, block_size))


class FunctionWorld(TellingWorld):
    """A function of lengths or of a table, and a block size; `setup` and `log` are as in `World`."""

    def __init__(self, subject: Any, setup: Setup, log: Log) -> None:
        super().__init__(subject, setup, log)
        self.block_size = setup["block_size"]

    def refuse(self, name: str, line: str, *arguments: Any, returned: str | None, **told: Any) -> None:
        """Call the learner's function with these arguments where it must raise ValueError: the property `name`.

        `line`, `returned` and `told` are as for `Log.refuse`; before it has answered rightly nothing is told.
        """
        returned, other_error = (returned, "other-error") if self.answered else (None, None)
        self.log.refuse(name, line, self.subject, *arguments, returned=returned, other_error=other_error, **told)


def given_as(how: str, values: tuple[int, ...]) -> tuple[Any, str]:
    """The values as an argument, and how a learner would type it."""
    if how == "range":
        return range(values[0], values[-1] + 1), f"range({values[0]}, {values[-1] + 1})"
    return (iter([*values]), f"iter({list(values)})") if how == "iter" else (list(values), str(list(values)))


def random_sizes(rng: random.Random) -> Setup:
    """Small blocks and large ones."""
    return {"block_size": rng.choice(SIZES)}


def calls(*operations: Operation) -> History:
    """An example of the usual block size."""
    return History.of({"block_size": USUAL, TELLING: 1}, *operations)

"""01-kv-bytes-per-block: what a block's memory takes.

Sizes are multiplied out here a second time.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable
from typing import Any

from refimpl.block import kv_bytes_per_block
from refimpl.checks.step import History, Log, Operation, Setup, Step, World, is_whole, show
from refimpl.checks.thoughts import only_one

FACTORS = "all that a block holds is counted, in bytes"
WHOLE = "bytes are a whole number"
IMPOSSIBLE = "an impossible size is refused with ValueError"

SIZES = ("block_size", "num_layers", "num_kv_heads", "head_dim", "dtype_bytes")
UNITS = (1000, 1024, 10**6, 2**20, 10**9, 2**30)


class _SizeWorld(World):
    """A function of five sizes; each operation is one call."""

    def __init__(self, subject: Any, setup: Setup, log: Log) -> None:
        super().__init__(subject, setup, log)
        self.sizes = tuple(setup.values())
        self.answered = self.two_bytes_answered = False

    def choices(self) -> Iterable[Operation]:
        yield "kv_bytes_per_block", *self.sizes
        yield "kv_bytes_per_block", 1, *self.sizes[1:]
        yield "kv_bytes_per_block", *(1 for _ in SIZES)
        for place in range(len(SIZES) if self.answered else 0):
            yield "kv_bytes_per_block", *self.sizes[:place], -place, *self.sizes[place + 1 :]

    def possible(self, operation: Operation) -> bool:
        """The refusal of an impossible size is given with the task, so it counts once an answer is right."""
        return self.answered or min(operation[1:]) > 0

    def _kv_bytes_per_block(self, *sizes: int) -> None:
        line = f"kv_bytes_per_block({', '.join(map(str, sizes))})"
        named = dict(zip(SIZES, sizes, strict=True))
        if min(sizes) > 0:
            self._answer(line, sizes, named)
            return
        self.log.refuse(
            IMPOSSIBLE,
            line,
            self.subject,
            *sizes,
            returned="impossible-size-answered",
            other_error=None,
            size=next(f"`{name}` is {size}" for name, size in named.items() if size < 1),
        )

    def _answer(self, line: str, sizes: tuple[int, ...], named: dict[str, int]) -> None:
        got = self.log.call(line, self.subject, *sizes)
        expected = math.prod((2, *sizes))
        misconception = _size_fault(got, expected, named, self.two_bytes_answered)
        evidence = {"got": f"{got:,}" if isinstance(got, int) else show(got), "expected": expected, **named}
        self.log.expect(FACTORS, "the number of bytes", got, expected, misconception, **evidence)
        self.log.hold(WHOLE, is_whole(got), "it should be an int", f"it is {show(got)}", "not-whole", **evidence)
        self.answered |= min(sizes[:3]) > 1
        self.two_bytes_answered |= sizes[-1] == 2


def _size_fault(got: Any, expected: int, sizes: dict[str, int], two_bytes_answered: bool) -> str | None:
    """The misconception behind a wrong number of bytes, where the sizes leave no doubt which one it is."""
    if got is None:
        return "nothing-returned"
    heads = sizes["num_kv_heads"]
    answers: dict[str, tuple[float, ...]] = {
        "values-forgotten": (expected / 2,),
        "queries-cached": (expected * 3 / 2,),
        "one-token-only": (expected / sizes["block_size"],),
        "one-layer-only": (expected / sizes["num_layers"],),
        "one-head-only": (expected / heads,),
        "numbers-not-bytes": (expected / sizes["dtype_bytes"],),
        "two-bytes-assumed": (expected * 2 / sizes["dtype_bytes"],) * two_bytes_answered,
        "bits-not-bytes": (expected * 8,),
        "head dim shared out": (expected / heads,) * (sizes["head_dim"] % heads == 0),
        "another-unit": tuple(answer for unit in UNITS for answer in (expected / unit, expected // unit) if answer),
    }
    fitting = [name for name, values in answers.items() if any(_near(got, value, expected) for value in values)]
    factors = [factor for factor in (2, *sizes.values()) if factor > 1]
    several = [math.prod(some) for n in range(2, 7) for some in itertools.combinations(factors, n)]
    if min(*list(sizes.values())[:4]) == 1 or any(_near(got, expected / factor, expected) for factor in several):
        return None
    return only_one(fitting)


def _near(got: Any, wrong: float, right: int) -> bool:
    """Whether the answer is this wrong one; where it is right it is no sign of anything."""
    return wrong != right and isinstance(got, int | float) and math.isclose(got, wrong, rel_tol=1e-9)


def _sizes_history(*calls: tuple[int, int, int, int, int]) -> History:
    setup = dict(zip(("tokens", "layers", "heads", "dim", "bytes"), calls[0], strict=True))
    return History(setup, tuple(("kv_bytes_per_block", *sizes) for sizes in calls))


def _model_sizes(rng: random.Random) -> Setup:
    return {
        "tokens": rng.choice((1, 16, 24, 40, 128)),
        "layers": rng.choice((12, 22, 30, 40, 61, 80)),
        "heads": rng.choice((1, 3, 5, 8, 10, 40)),
        "dim": rng.choice((48, 64, 80, 96, 256)),
        "bytes": rng.choice((1, 2, 4)),
    }


STEP = Step(
    exercise_id="01-kv-bytes-per-block",
    title="bytes of a block",
    points=3,
    subject="kv_bytes_per_block",
    reference=(kv_bytes_per_block,),
    properties=(FACTORS, WHOLE, IMPOSSIBLE),
    misconceptions={
        "nothing-returned": "The caller divides the memory of a GPU by this number, so return it: yours returned None.",
        "values-forgotten": "A token leaves two vectors in each layer, a key and a value, and attention needs "
        "both: {expected:,} bytes, and yours is half of it.",
        "queries-cached": "Keys and values are kept, queries are not: a query is used in the step that computes "
        "it and never again, so count two vectors, not three.",
        "one-token-only": "These are the bytes of one token, and a block has room for {block_size}: {expected:,} "
        "bytes, and yours is {got}.",
        "one-layer-only": "Every layer has keys and values of its own, and a block has its row in all of them: "
        "{num_layers} layers take {expected:,} bytes, and yours counts one.",
        "one-head-only": "Every KV head has a key and a value of its own: {num_kv_heads} heads take {expected:,} "
        "bytes, and yours counts one.",
        "numbers-not-bytes": "These are the numbers in a block, and each of them takes {dtype_bytes} bytes: "
        "{expected:,}, and yours is {got}.",
        "two-bytes-assumed": "Not every cache keeps numbers of 2 bytes: here each takes {dtype_bytes}, as "
        "`dtype_bytes` says, so it is {expected:,} bytes, and yours is {got}.",
        "bits-not-bytes": "`dtype_bytes` is in bytes already, so there is no 8 in this product: {expected:,} "
        "bytes, and yours counts bits.",
        "another-unit": "The answer is in bytes, whatever reads better: memory is divided by it, so it is "
        "{expected:,}, and yours is {got}.",
        "not-whole": "Bytes are counted, so the answer is an int: nothing in this product has to be divided, and "
        "yours is {got}.",
        "impossible-size-answered": "A size below 1 is a mistake of the caller's, and an answer would hide it: "
        "{size}, so keep the lines that raise ValueError.",
    },
    world=_SizeWorld,
    examples=(
        _sizes_history((16, 32, 8, 128, 2)),
        _sizes_history((16, 30, 3, 64, 1), (16, 30, 3, 64, 4), (16, 30, 0, 64, 4), (16, -30, -3, 64, 4)),
        _sizes_history((16, 30, 3, 64, 2), (16, 30, 3, 64, 1)),
        _sizes_history((1, 1, 1, 1, 1)),
    ),
    setups=_model_sizes,
)

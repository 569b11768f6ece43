"""09-num-blocks: how many blocks fit.

The account is arithmetic in fractions.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from numbers import Integral, Number
from typing import Any

from refimpl.checks.step import History, Operation, Step, counted, is_count, show
from refimpl.checks.thoughts import Thought, ThoughtWorld
from refimpl.device import memory, plain_cache

SHARE = "the cache has its share of all memory, less the model and a step"
WHOLE = "whole blocks are counted, with an int"
EXACT = "blocks that fit exactly are all counted"
LAST = "one block is enough"
NONE_FITS = "no room for a single block is refused with ValueError"
NEGATIVE = "a model that is larger than the share is refused with ValueError"


def _asked(verb: str, *calls: tuple[Any, ...]) -> History:
    """Calls with these arguments."""
    return History.of({}, *((verb, *arguments) for arguments in calls))


@dataclass(frozen=True, slots=True)
class _Memory:
    """What num_gpu_blocks is asked."""

    total: int
    utilization: float
    model: int
    step: int
    block_bytes: int

    @property
    def share(self) -> Fraction:
        """Bytes that are ours, as the decimal number says that was written."""
        return Fraction(str(self.utilization)) * self.total

    @property
    def budget(self) -> Fraction:
        """Bytes for the cache."""
        return self.share - self.model - self.step

    def blocks(self, budget: Fraction | int) -> int:
        """Whole blocks in so many bytes."""
        return int(budget // self.block_bytes)


def _number(got: Any) -> Any:
    """The answer as something that can be compared with a thought's."""
    return int(got) if isinstance(got, Integral) else got


def _num_blocks_fault(got: Any, expected: int) -> str | None:
    """What the answer alone tells."""
    if got is None:
        return "nothing-returned"
    return "not-a-whole-number" if isinstance(got, float) and expected <= got < expected + 1 else None


def _with_bytes(name: str, budget: Callable[[_Memory], Fraction | int]) -> Thought:
    """The thought that the cache has these bytes, in whole blocks."""

    def blocks(case: _Memory) -> int:
        if budget(case) < case.block_bytes:
            raise ValueError
        return case.blocks(budget(case))

    return Thought(name, blocks)


def _share_of(case: _Memory, rest: int) -> Fraction:
    return Fraction(str(case.utilization)) * rest


NUM_BLOCKS_THOUGHTS = (
    _with_bytes("share-of-the-rest", lambda case: _share_of(case, case.total - case.model - case.step)),
    _with_bytes("share-of-the-rest", lambda case: _share_of(case, case.total - case.model) - case.step),
    _with_bytes("share-of-the-rest", lambda case: _share_of(case, case.total - case.step) - case.model),
    _with_bytes("whole-memory", lambda case: case.total - case.model - case.step),
    _with_bytes("model-forgotten", lambda case: case.share - case.step),
    _with_bytes("step-forgotten", lambda case: case.share - case.model),
    _with_bytes("both-forgotten", lambda case: case.share),
    Thought("rounded-up", lambda case: -int(-case.budget // case.block_bytes)),
    Thought("rounded-up", lambda case: round(case.budget / case.block_bytes)),
    _with_bytes("rounded-up", lambda case: -int(-case.share // 1) - case.model - case.step),
    Thought("bytes-for-blocks", lambda case: int(case.budget)),
    _with_bytes("values-counted-twice", lambda case: case.budget / 2),
    Thought("a-block-kept-back", lambda case: case.blocks(case.budget) - 1),
)


NUM_BLOCKS_EXAMPLES = (
    _asked("num_gpu_blocks", (1000, 0.9, 170, 50, 100)),
    _asked("num_gpu_blocks", (80 * 10**9, 0.9, 16_060_522_496, 2 * 10**9, 2_097_152)),
    _asked("num_gpu_blocks", (1000, 0.5, 200, 100, 100)),
    _asked("num_gpu_blocks", (1000, 0.75, 300, 260, 100)),
    _asked("num_gpu_blocks", (1000, 0.5, 300, 100, 100)),
    _asked("num_gpu_blocks", (1000, 1.0, 250, 180, 100)),
    _asked("num_gpu_blocks", (4096, 0.5, 1024, 900, 64)),
    _asked("num_gpu_blocks", (1001, 0.75, 400, 151, 100)),
    _asked("num_gpu_blocks", (1000, 0.625, 300, 25, 100)),
    _asked("num_gpu_blocks", (1000, 0.9, 170, 50, 100), (1000, 0.5, 350, 100, 100)),
    _asked("num_gpu_blocks", (1000, 0.9, 170, 50, 100), (1000, 0.5, 400, 100, 100)),
    _asked("num_gpu_blocks", (1000, 0.9, 170, 50, 100), (1000, 0.5, 800, 50, 100)),
)


@cache
def _memories() -> list[Operation]:
    """Devices with room for many blocks, few, one, none, and less than none; some budgets hold whole blocks."""
    found: list[Operation] = []
    for total, block in ((1000, 100), (4096, 64), (12_000, 700), (80 * 10**9, 2_097_152)):
        for utilization, model, blocks in itertools.product((0.5, 0.75, 1.0), (1, 3, 5), (-9, 0, 1, 2, 7, 40)):
            for more in (0, 1, block // 3, block - 1):
                step = int(total * utilization) - total * model // 20 - blocks * block - more
                if step > 0:
                    found.append(("num_gpu_blocks", total, utilization, total * model // 20, step, block))
        found.append(("num_gpu_blocks", total, 0.9, total * 2 // 5, total // 20 - block // 2, block))
    return found


@cache
def _fits(*numbers: Any) -> bool:
    """Whether there is room for a block."""
    case = _Memory(*numbers)
    return case.budget >= case.block_bytes


class _NumBlocksWorld(ThoughtWorld):
    """A function of five numbers; each operation is one call."""

    thoughts, examples = NUM_BLOCKS_THOUGHTS, NUM_BLOCKS_EXAMPLES

    def calls(self) -> Iterable[Operation]:
        return _memories()

    def possible(self, operation: Operation) -> bool:
        """Refusals only once something has been answered."""
        return self.answered or _fits(*operation[1:])

    def _num_gpu_blocks(self, *numbers: Any) -> None:
        case = _Memory(*numbers)
        line = f"num_gpu_blocks({', '.join(map(str, numbers))})"
        told: dict[str, Any] = {
            "total": case.total,
            "utilization": case.utilization,
            "share": int(case.share),
            "budget": int(case.budget),
            "model": case.model,
            "step": case.step,
            "block": case.block_bytes,
        }
        if case.budget < case.block_bytes:
            self._refuse(line, case, told)
            return
        expected = case.blocks(case.budget)
        told["blocks"] = counted(expected, "block")
        got = self.call([SHARE], line, case, *numbers, **told)
        self.seen.append((case, ("did", _number(got))))
        thought = None
        if not is_count(got, expected):
            thought = _num_blocks_fault(got, expected) or self.thought()
        should, but = f"the result should be {expected}", f"it is {show(got)}"
        told["got"] = show(got)
        near = isinstance(got, Number) and not isinstance(got, complex) and abs(got - expected) <= 1  # type: ignore[operator]
        self.log.hold(SHARE, bool(near), should, but, thought, **told)
        for name in (WHOLE, *[EXACT] * (case.budget % case.block_bytes == 0), *[LAST] * (expected == 1)):
            self.log.hold(name, is_count(got, expected), should, but, thought, **told)
        self.answered = True

    def _refuse(self, line: str, case: _Memory, told: dict[str, Any]) -> None:
        name = NEGATIVE if case.budget < 0 else NONE_FITS
        numbers = dataclasses.astuple(case)
        self.refuse(name, line, *numbers, returned="nothing-fits-answered", other_error="other-error", **told)


STEP = Step(
    exercise_id="09-num-blocks",
    title="how many blocks fit",
    points=2,
    subject="num_gpu_blocks",
    reference=(plain_cache.num_gpu_blocks, memory.num_gpu_blocks),
    properties=(SHARE, WHOLE, EXACT, LAST, NONE_FITS, NEGATIVE),
    misconceptions={
        "nothing-returned": "Whoever makes the pool needs the number of its blocks: yours returned None.",
        "share-of-the-rest": "The share is one of all memory, whatever lies in it: {utilization} of {total} bytes "
        "are {share}, and only from those go the model's {model} and the step's {step}.",
        "whole-memory": "Only a share of the memory is ours: of {total} bytes {utilization}, which is {share}, "
        "and yours used all of it.",
        "model-forgotten": "The model lies in the same memory: of our {share} bytes it takes {model}, and yours "
        "gave them to the cache as well.",
        "step-forgotten": "While a step runs it needs memory of its own: {step} bytes that the cache must leave "
        "free, or the first large step runs out of memory.",
        "both-forgotten": "What is ours is not all the cache's: of {share} bytes the model takes {model} and a "
        "step {step}, and the cache gets the other {budget}.",
        "rounded-up": "A block that does not fit whole does not fit: {budget} bytes hold {blocks} of {block}, and "
        "yours said {got}.",
        "bytes-for-blocks": "The block manager counts blocks and not bytes: {budget} bytes are {blocks} of "
        "{block}, and yours returned {got}.",
        "values-counted-twice": "A block's bytes are those of its keys and its values, in all layers: {budget} "
        "bytes hold {blocks} of {block}, and yours, {got}, counts them once more.",
        "a-block-kept-back": "What fits is the pool, and keeping some of it back is the watermark's work: "
        "{budget} bytes hold {blocks} of {block}, and yours said {got}.",
        "not-a-whole-number": "Blocks are counted with an int, which `range` takes: {budget} bytes hold {blocks}, "
        "and yours returned {got}.",
        "nothing-fits-answered": "A pool without a block can serve nobody: {budget} bytes are left and a block "
        "takes {block}, so raise ValueError, while somebody can still change the numbers.",
        "other-error": "The error for a pool without a block is ValueError, raised on purpose, since that is what "
        "a caller waits for: yours ended in {error}.",
    },
    world=_NumBlocksWorld,
    examples=NUM_BLOCKS_EXAMPLES,
    setups=lambda rng: {},
)

"""12-pick-block-size: which block size costs least.

The account fills up blocks one after the other; the theories count otherwise.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from refimpl.checks.ch12_tune_and_troubleshoot.probes import alike, named
from refimpl.checks.step import History, Log, Operation, Setup, Step, World, counted, show
from refimpl.simulation.diagnosis import BlockSizes

EMPTY = "each empty slot costs its bytes"
FILLED = "a request that fills its blocks has no empty slot"
BESIDES = "each block costs its bytes besides"
ADDED = "both costs add up, over all requests"
LEAST = "the block size that costs least is picked"
LARGEST = "of several that cost the same the largest is picked"
NO_CANDIDATE = "without a candidate ValueError is raised"
GIVEN_KEPT = "lengths and candidates stay as they were"

Lengths = tuple[int, ...]
SIZES = (1, 2, 4, 8, 12, 16, 32, 64, 128)


@dataclass(frozen=True, slots=True)
class _Mix:
    """Requests, and what a slot and a block cost."""

    lengths: Lengths
    slot_bytes: int
    block_bytes: int

    def blocks(self, size: int) -> list[int]:
        """Of each request: one for each token that opens a block."""
        return [len(range(0, length, size)) for length in self.lengths]

    def empty(self, size: int) -> list[int]:
        """Slots of each request behind its last token, its blocks laid out in a row."""
        pairs = zip(self.blocks(size), self.lengths, strict=True)
        return [len(range(blocks * size)[length:]) for blocks, length in pairs]

    def cost(self, size: int) -> int:
        """The account."""
        return sum(self.empty(size)) * self.slot_bytes + sum(self.blocks(size)) * self.block_bytes

    def pooled(self, size: int) -> int:
        """The cost of one long request with everybody's tokens."""
        return _Mix((sum(self.lengths),), self.slot_bytes, self.block_bytes).cost(size)

    def with_blocks(self, blocks: list[int], size: int) -> int:
        """The cost of so many blocks for each request."""
        return (sum(blocks) * size - sum(self.lengths)) * self.slot_bytes + sum(blocks) * self.block_bytes

    def with_waste(self, waste: Fraction | int, size: int) -> Fraction | int:
        """The cost of so many empty slots in all."""
        return waste * self.slot_bytes + sum(self.blocks(size)) * self.block_bytes

    def best(self, candidates: Iterable[int], *, most: bool = False, largest: bool = True) -> int:
        """The candidate that costs least, or most; of several the largest, or the smallest."""
        sign, tie = (-1 if most else 1), (-1 if largest else 1)
        return min(candidates, key=lambda size: (sign * self.cost(size), tie * size))


COST_THEORIES: tuple[tuple[str, Callable[[_Mix, int], Any]], ...] = (
    ("half-a-block-for-each", lambda mix, size: mix.with_waste(Fraction(len(mix.lengths) * size, 2), size)),
    ("half-a-block-for-each", lambda mix, size: mix.with_waste(len(mix.lengths) * (size // 2), size)),
    ("full-blocks-waste-one-more", lambda mix, size: mix.with_waste(sum(size - n % size for n in mix.lengths), size)),
    ("full-blocks-waste-one-more", lambda mix, size: mix.with_blocks([n // size + 1 for n in mix.lengths], size)),
    ("rounded-down", lambda mix, size: mix.with_blocks([n // size for n in mix.lengths], size)),
    (
        "rounded-down",
        lambda mix, size: sum(mix.empty(size)) * mix.slot_bytes + sum(n // size for n in mix.lengths) * mix.block_bytes,
    ),
    ("full-slots-counted", lambda mix, size: mix.with_waste(sum(mix.blocks(size)) * size, size)),
    ("tokens-beyond-for-empty", lambda mix, size: mix.with_waste(sum(n % size for n in mix.lengths), size)),
    ("slots-for-bytes", lambda mix, size: sum(mix.empty(size)) + sum(mix.blocks(size)) * mix.block_bytes),
    ("blocks-are-free", lambda mix, size: sum(mix.empty(size)) * mix.slot_bytes),
    (
        "one-block-for-each",
        lambda mix, size: sum(mix.empty(size)) * mix.slot_bytes + len(mix.lengths) * mix.block_bytes,
    ),
    ("requests-share-blocks", lambda mix, size: mix.pooled(size)),
    ("mean-for-sum", lambda mix, size: Fraction(mix.cost(size), len(mix.lengths))),
    ("mean-for-sum", lambda mix, size: mix.cost(size) // len(mix.lengths)),
)
PICK_THEORIES: tuple[tuple[str, Callable[[_Mix, list[int]], Any]], ...] = (
    ("dearest-picked", lambda mix, sizes: mix.best(sizes, most=True)),
    ("dearest-picked", lambda mix, sizes: mix.best(sizes, most=True, largest=False)),
    ("smallest-of-equals", lambda mix, sizes: mix.best(sizes, largest=False)),
    ("first-of-equals", lambda mix, sizes: min(sizes, key=mix.cost)),
    ("smallest-always", lambda mix, sizes: min(sizes)),
    ("largest-always", lambda mix, sizes: max(sizes)),
    ("cost-for-size", lambda mix, sizes: min(map(mix.cost, sizes))),
)
COST_PROBES = tuple(
    (_Mix(lengths, slot_bytes, block_bytes), size)
    for lengths, slot_bytes, block_bytes in (((35, 64), 100, 1000), ((1, 7, 16, 50), 3, 5), ((90, 33, 2), 11, 400))
    for size in (1, 16, 4, 32)
)
PICK_PROBES = (
    (_Mix((35, 64), 100, 1000), [16, 64, 32]),
    (_Mix((35, 64), 100, 10), [64, 4, 16, 1]),
    (_Mix((16,), 1, 0), [8, 4, 16, 64]),
    (_Mix((12, 12), 5, 5), [3, 4, 2, 12]),
    (_Mix((9,), 1, 4), [16, 1, 8, 12]),
    (_Mix((6,), 2, 6), [3, 2, 8]),
    (_Mix((5,), 1, 1), [8, 2]),
)


class _SizesWorld(World):
    """Each operation is one question, to a new object unless lengths and costs are those of the last one.

    Operations: ("cost", lengths, slot_bytes, block_bytes, size) and ("pick", lengths, slot_bytes, block_bytes,
    candidates).
    """

    def __init__(self, subject: Any, setup: Setup, log: Log) -> None:
        super().__init__(subject, setup, log)
        self.rng = random.Random(setup["draw"])
        self.mix: _Mix | None = None

    def choices(self) -> Iterable[Operation]:
        for _ in range(4):
            lengths = tuple(self.rng.randint(1, 200) for _ in range(self.rng.randint(1, 6)))
            full = tuple(self.rng.choice((16, 32, 64)) for _ in range(self.rng.randint(1, 3)))
            slot, block = self.rng.randint(1, 20), self.rng.choice((0, 1, 5, 40, 300))
            yield "cost", lengths, slot, block, self.rng.choice(SIZES)
            yield "cost", full, slot, block, self.rng.choice((4, 8, 16))
            yield "cost", lengths, slot, 0, self.rng.choice(SIZES)
            yield "pick", lengths, slot, block, tuple(self.rng.sample(SIZES, self.rng.randint(1, 6)))
            yield "pick", full, slot, 0, tuple(self.rng.sample((1, 4, 8, 16, 128), 4))
        yield "pick", lengths, slot, block, ()

    def perform(self, operation: Operation) -> None:
        verb, lengths, slot_bytes, block_bytes, asked = operation
        mix = _Mix(lengths, slot_bytes, block_bytes)
        if mix != self.mix or asked == ():
            self.mix, self.given = mix, list(lengths)
            line = f"sizes = BlockSizes({self.given}, slot_bytes={slot_bytes}, block_bytes={block_bytes})"
            self.sizes = self.log.call(line, self.subject, self.given, slot_bytes, block_bytes)
        sizes = self.sizes
        if verb == "cost":
            self._cost(sizes, mix, asked)
        elif asked:
            self._pick(sizes, mix, list(asked))
        else:
            names = ("nothing-to-pick-from", "other-error") if self._picks_right() else (None, None)
            self.log.refuse(NO_CANDIDATE, "sizes.pick([])", sizes.pick, [], returned=names[0], other_error=names[1])
        self.log.expect(GIVEN_KEPT, "the list of lengths", self.given, list(lengths))

    def _cost(self, sizes: Any, mix: _Mix, size: int) -> None:
        got = self.log.call(f"sizes.cost({size})", sizes.cost, size)
        wanted = mix.cost(size)
        empty, blocks = sum(mix.empty(size)), sum(mix.blocks(size))
        if mix.block_bytes:
            name = ADDED if empty else BESIDES
        else:
            name = EMPTY if empty else FILLED
        right = alike(got, wanted)
        thought = "nothing-returned" if got is None else None
        if not right and thought is None:
            said = ((name, [theory(*probe) for probe in COST_PROBES]) for name, theory in COST_THEORIES)
            thought = named(lambda: [self._asked("cost", *probe) for probe in COST_PROBES], said)
        sum_of = f"{empty} empty slots × {mix.slot_bytes} + {counted(blocks, 'block')} × {mix.block_bytes}"
        evidence = {"size": size, "got": show(got), "wanted": wanted, "sum": sum_of, "blocks": counted(blocks, "block")}
        evidence |= {"lengths": list(mix.lengths), "empty": counted(empty, "empty slot"), "slot": mix.slot_bytes}
        should = f"the cost should be {wanted}, {sum_of}"
        self.log.hold(name, right, should, f"it is {show(got)}", thought, **evidence)

    def _pick(self, sizes: Any, mix: _Mix, candidates: list[int]) -> None:
        given = list(candidates)
        got = self.log.call(f"sizes.pick({given})", sizes.pick, given)
        wanted = mix.best(candidates)
        several = sum(mix.cost(size) == mix.cost(wanted) for size in set(candidates)) > 1
        right = alike(got, wanted)
        thought = "nothing-returned" if got is None else None
        if not right and thought is None and self._costs_right():
            said = ((name, [theory(mix, list(sizes)) for mix, sizes in PICK_PROBES]) for name, theory in PICK_THEORIES)
            thought = named(lambda: [self._asked("pick", mix, list(sizes)) for mix, sizes in PICK_PROBES], said)
        costs = ", ".join(f"{size} costs {mix.cost(size)}" for size in candidates)
        evidence = {"got": show(got), "wanted": wanted, "costs": costs, "size": wanted}
        name = LARGEST if several else LEAST
        self.log.hold(name, right, f"it should be {wanted} ({costs})", f"it is {show(got)}", thought, **evidence)
        self.log.expect(GIVEN_KEPT, "the list of candidates", given, candidates, "candidates-changed")

    def _costs_right(self) -> bool:
        """Whether the costs are right, so that a wrong pick is one of the picking."""
        costs = [("", [mix.cost(size) for mix, size in COST_PROBES])]
        return named(lambda: [self._asked("cost", *probe) for probe in COST_PROBES], costs) is not None

    def _picks_right(self) -> bool:
        """Whether there is nothing else to say than what happens without a candidate."""
        picks = [("", [mix.best(sizes) for mix, sizes in PICK_PROBES])]
        return named(lambda: [self._asked("pick", mix, list(sizes)) for mix, sizes in PICK_PROBES], picks) is not None

    def _asked(self, question: str, mix: _Mix, asked: Any) -> Any:
        """The learner's answer to a question that is no operation."""
        return getattr(self.subject(list(mix.lengths), mix.slot_bytes, mix.block_bytes), question)(asked)


def _sizes_history(*operations: Operation) -> History:
    return History.of({"draw": 1}, *operations)


STEP = Step(
    exercise_id="12-pick-block-size",
    title="pick a block size",
    points=2,
    subject="BlockSizes",
    writes=("cost", "pick"),
    needs=("__init__",),
    reference=(BlockSizes.cost, BlockSizes.pick),
    properties=(EMPTY, FILLED, BESIDES, ADDED, LEAST, LARGEST, NO_CANDIDATE, GIVEN_KEPT),
    misconceptions={
        "nothing-returned": "Whoever asks wants to compare: your method returned None.",
        "half-a-block-for-each": "Half a block is the waste of a request on average; these lengths are known, and "
        "with blocks of {size} they leave {empty}: {wanted}, and yours is {got}.",
        "full-blocks-waste-one-more": "A request that fills its last block leaves no slot empty: blocks of {size} "
        "for {lengths} leave {empty}, which makes {wanted}, and yours is {got}.",
        "rounded-down": "A block that is begun is a block: round up, {lengths} take {blocks} of {size} and leave "
        "{empty}, which makes {wanted}, and yours is {got}.",
        "full-slots-counted": "A slot that holds a token is no waste: with blocks of {size} there are {empty} in "
        "{blocks}, which makes {wanted}, and yours is {got}.",
        "tokens-beyond-for-empty": "What is left of a length after its full blocks are tokens; the empty slots are "
        "the rest of the last block: {empty}, which makes {wanted}, and yours is {got}.",
        "slots-for-bytes": "Slots and bytes cannot be added: an empty slot costs {slot} bytes, so the cost is "
        "{wanted}, and yours is {got}.",
        "blocks-are-free": "Each block costs something besides its slots, or the smallest size would always win: "
        "{sum} is {wanted}, and yours is {got}.",
        "one-block-for-each": "A request pays for every one of its blocks and not once: {sum} is {wanted}, and "
        "yours is {got}.",
        "requests-share-blocks": "Two requests do not share a last block, so round up each length by itself: "
        "blocks of {size} for {lengths} leave {empty}, which makes {wanted}, and yours is {got}.",
        "mean-for-sum": "The cost is that of all requests together: {sum} is {wanted}, and yours is {got}.",
        "dearest-picked": "The size that costs least is wanted: {costs}; that is {wanted}, and you picked {got}.",
        "smallest-of-equals": "Of sizes that cost the same the largest is picked, which has fewer blocks to keep "
        "account of: {costs}; that is {wanted}, and you picked {got}.",
        "first-of-equals": "Which size stands first in the list means nothing; of those that cost the same the "
        "largest is picked: {costs}; that is {wanted}, and you picked {got}.",
        "smallest-always": "The smallest blocks waste least and are the most to handle: both costs count. {costs}; "
        "that is {wanted}, and you picked {got}.",
        "largest-always": "The largest blocks are the fewest and waste most: both costs count. {costs}; that is "
        "{wanted}, and you picked {got}.",
        "cost-for-size": "The answer is a block size and not what it costs: {costs}; that is {wanted}, and yours "
        "is {got}.",
        "nothing-to-pick-from": "Without a candidate there is nothing to pick, so raise ValueError: whoever called "
        "would go on with a block size that nobody has proposed.",
        "other-error": "The error for a list without candidates is ValueError, since that is what a caller waits "
        "for: yours raised {error}.",
        "candidates-changed": "The list of candidates is the caller's: yours comes back changed.",
    },
    world=_SizesWorld,
    examples=(
        _sizes_history(
            ("cost", (35, 64), 100, 1000, 16), ("cost", (35, 64), 100, 1000, 64),
            ("pick", (35, 64), 100, 1000, (16, 32, 64)),
        ),
        _sizes_history(("cost", (35, 64), 100, 0, 16)),
        _sizes_history(("cost", (32, 64), 100, 0, 16)),
        _sizes_history(("cost", (32, 64), 100, 1000, 16)),
        _sizes_history(("cost", (17, 17), 100, 1000, 16)),
        _sizes_history(("pick", (9,), 1, 4, (16, 1, 8, 12))),
        _sizes_history(("pick", (35, 64), 100, 10, (64, 4, 16, 1))),
        _sizes_history(("pick", (12,), 1, 1, (4, 8, 12))),
        _sizes_history(("pick", (16,), 1, 0, (8, 4, 16, 64))),
        _sizes_history(("pick", (16,), 1, 0, (8, 64)), ("pick", (16,), 1, 0, (64, 32))),
        _sizes_history(("pick", (35, 64), 100, 1000, (16,)), ("pick", (35, 64), 100, 1000, ())),
    ),
    setups=lambda rng: {"draw": rng.randint(1, 10**6)},
)  # fmt: skip

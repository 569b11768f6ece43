"""09-copy and 09-swap: blocks are copied and swapped.

A thought is a wrong way to move the same blocks in the account of the pools.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

from torch import Tensor

from refimpl.checks.pools import (
    BESIDE,
    BLOCKS,
    HEADS,
    KEEPS,
    NOTHING_ELSE,
    ROWS,
    STRIDED,
    Place,
    PoolWorld,
    Sizes,
    State,
    only_if,
    random_sizes,
    sized,
)
from refimpl.checks.step import History, Log, Operation, Setup, Step, counted, show
from refimpl.checks.thoughts import Thought
from refimpl.device import kv_cache, plain_cache

COPIED = "keys and values of every layer are copied"
AS_ONE = "all blocks are read before one is overwritten"
NO_PAIRS = "no pairs, no change"

SWAPPED = "keys and values of every layer are swapped"
BACK = "what comes back is what went out"


def _copies(setup: Setup, *pairs: tuple[tuple[int, int], ...]) -> History:
    """Copies of these pairs."""
    return History.of(setup, *(("copy_blocks", some) for some in pairs))


def _swaps(setup: Setup, *swaps: tuple[Any, ...]) -> History:
    """Swaps of these pairs out of the pool that is named first."""
    other = {"gpu": "cpu", "cpu": "gpu"}
    return History.of(setup, *(("swap_blocks", name, other[name], tuple(pairs)) for name, *pairs in swaps))


@dataclass(frozen=True, slots=True)
class _Move:
    """What copy_blocks or swap_blocks is asked: blocks that go from one pool to the other, or stay in one."""

    states: dict[str, State]
    source: str
    destination: str
    pairs: tuple[tuple[int, int], ...]
    sizes: dict[str, Sizes]
    indices: dict[str, Tensor]
    strided: bool

    def moved(self, *moves: tuple[str, Place, str, Place]) -> dict[str, State]:
        """The pools after numbers have been moved, one after the other: from a pool and place to another."""
        states = {name: dict(state) for name, state in self.states.items()}
        for source, by, destination, to in moves:
            if by not in states[source] or to not in states[destination]:
                raise IndexError
            states[destination][to] = states[source][by]
        return states

    def places(self, layers: bool = True, sides: bool = True) -> Iterator[tuple[int, int, int]]:
        """Layer, side and offset of all that moves with a block; or of the first layer, or the keys, alone."""
        sizes = self.sizes[self.source]
        for layer, side, offset in itertools.product(range(sizes.num_layers), range(2), range(sizes.block_size)):
            if (layers or layer == 0) and (sides or side == 0):
                yield layer, side, offset

    def one_after_the_other(
        self,
        pairs: Iterable[tuple[int, int]],
        *,
        source: str = "",
        destination: str = "",
        layers: bool = True,
        sides: bool = True,
    ) -> dict[str, State]:
        """These pairs, each read after those before it have been written."""
        by, to = source or self.source, destination or self.destination
        return self.moved(
            *(
                (by, (layer, side, first, offset), to, (layer, side, second, offset))
                for first, second in pairs
                for layer, side, offset in self.places(layers, sides)
            )
        )

    def at_once(self, pairs: Iterable[tuple[int, int]], **which: Any) -> dict[str, State]:
        """These pairs, all read before one is written."""
        pairs = list(pairs)
        states = {name: dict(state) for name, state in self.states.items()}
        for pair in pairs:
            after = self.one_after_the_other([pair], **which)
            for name, state in after.items():
                states[name] |= {place: state[place] for place in state if state[place] != self.states[name][place]}
        return states

    def right(self) -> dict[str, State]:
        """What must stand in the pools afterwards."""
        return self.at_once(self.pairs)

    def zeroed(self, states: dict[str, State]) -> dict[str, State]:
        """The same with nothing left in the blocks that were read, unless they were written too."""
        state = dict(states[self.source])
        kept = {second for _, second in self.pairs} if self.source == self.destination else set()
        for first in {first for first, _ in self.pairs} - kept:
            for layer, side, offset in self.places():
                place = (layer, side, first, offset)
                state[place] = (0.0,) * len(state[place])
        return {**states, self.source: state}


def _exchanged(case: _Move) -> dict[str, State]:
    """Each pair changes places, one pair after the other."""
    states = {name: dict(state) for name, state in case.states.items()}
    for first, second in case.pairs:
        for layer, side, offset in case.places():
            by, to = (layer, side, first, offset), (layer, side, second, offset)
            one, other = states[case.source], states[case.destination]
            one[by], other[to] = other[to], one[by]
    return states


def _another_axis(axis: int) -> Callable[[_Move], dict[str, State]]:
    """Layers, or keys and values, are copied by the numbers of the blocks, one pair after the other."""

    def does(case: _Move) -> dict[str, State]:
        size = (case.sizes[case.source].num_layers, 2)[axis]
        states = {name: dict(state) for name, state in case.states.items()}
        for first, second in case.pairs:
            if max(first, second) >= size:
                raise IndexError
            one, other = states[case.source], states[case.destination]
            for place in [place for place in other if place[axis] == second]:
                layer, side, block, offset = place
                other[place] = one[(first, side, block, offset) if axis == 0 else (layer, first, block, offset)]
        return states

    return does


def _into_a_copy(*shape: str) -> Thought:
    """Right where the pool can be seen in this shape without a copy, and nothing at all where it cannot."""

    def does(case: _Move) -> dict[str, State]:
        return case.right() if _sees(case.indices[case.destination], shape) else case.states

    return Thought("written-into-a-copy", does)


def _viewed(*shape: str) -> Thought:
    """Right where the pool can be seen in this shape without a copy, and an error where it cannot."""
    return Thought("viewed", only_if(RuntimeError, lambda case: not _sees(case.indices[case.destination], shape)))


def _sees(indices: Tensor, shape: tuple[str, ...]) -> bool:
    """Whether the pool can be viewed with these axes, "2NB" for three in one."""
    axes = dict(zip("L2NBHD", indices.shape, strict=True))
    with contextlib.suppress(RuntimeError):
        indices.view([prod(axes[letter] for letter in letters) for letters in shape])
        return True
    return False


FLAT_SHAPES = (("L", "2", "N", "BHD"), ("L2", "N", "BHD"), ("L2", "N", "B", "H", "D"), ("L2NBHD",))
MOVE_THOUGHTS = (
    Thought("not-in-place", lambda case: case.states),
    *(_into_a_copy(*shape) for shape in FLAT_SHAPES),
    *(_viewed(*shape) for shape in FLAT_SHAPES),
    Thought("first-layer-only", lambda case: case.at_once(case.pairs, layers=False)),
    Thought("values-left-out", lambda case: case.at_once(case.pairs, sides=False)),
    Thought("first-pair-only", lambda case: case.at_once(case.pairs[:1])),
    Thought("blocks-exchanged", _exchanged),
    Thought("source-cleared", lambda case: case.zeroed(case.right())),
    Thought("pair-turned-round", lambda case: case.one_after_the_other((b, a) for a, b in case.pairs)),
    Thought("no-pairs-refused", only_if(ValueError, lambda case: not case.pairs)),
    Thought("no-pairs-refused", only_if(IndexError, lambda case: not case.pairs)),
)
COPY_THOUGHTS = (
    *MOVE_THOUGHTS,
    Thought("read-after-write", lambda case: case.one_after_the_other(case.pairs)),
    Thought("read-after-write", lambda case: case.one_after_the_other(reversed(case.pairs))),
    Thought("pair-turned-round", lambda case: case.at_once((second, first) for first, second in case.pairs)),
    Thought("another-axis", _another_axis(0)),
    Thought("another-axis", _another_axis(1)),
)
SWAP_THOUGHTS = (
    *MOVE_THOUGHTS,
    Thought(
        "pools-exchanged",
        lambda case: case.one_after_the_other(
            ((second, first) for first, second in case.pairs), source=case.destination, destination=case.source
        ),
    ),
    Thought("same-number", lambda case: case.one_after_the_other((a, a) for a, _ in case.pairs)),
    Thought("within-one-pool", lambda case: case.one_after_the_other(case.pairs, destination=case.source)),
    Thought("within-one-pool", lambda case: case.one_after_the_other(case.pairs, source=case.destination)),
)


COPY_EXAMPLES = (
    _copies(sized(), ((3, 1), (0, 2))),
    _copies(sized(), ((1, 4),)),
    _copies(sized(), ((0, 1),)),
    _copies(sized(), ((0, 1), (1, 2))),
    _copies(sized(), ((0, 1), (1, 0))),
    _copies(sized(), ((4, 5), (3, 4))),
    _copies(sized(), ((2, 0), (2, 5))),
    _copies(sized(layout=HEADS), ((3, 1), (0, 2))),
    _copies(sized(layout=BESIDE), ((3, 1), (0, 2))),
    _copies(sized(layout=BLOCKS), ((3, 1), (0, 2))),
    _copies(sized(num_layers=1, layout=HEADS), ((3, 1),)),
    _copies(sized(dtype=1), ((3, 1),)),
    _copies(sized(dtype=2, layout=HEADS), ((3, 1), (1, 4))),
    _copies(sized(), ((3, 1),), (), ((1, 5),)),
)
SWAP_EXAMPLES = (
    _swaps(sized(), ("gpu", (4, 0), (2, 3))),
    _swaps(sized(), ("gpu", (1, 2))),
    _swaps(sized(), ("gpu", (0, 1), (3, 0))),
    _swaps(sized(num_cpu_blocks=8), ("gpu", (2, 7))),
    _swaps(sized(), ("gpu", (2, 0), (2, 3))),
    _swaps(sized(), ("gpu", (4, 0), (2, 3)), ("cpu", (0, 1), (3, 5))),
    _swaps(sized(), ("gpu", (0, 0), (1, 1)), ("cpu", (1, 0), (0, 1))),
    _swaps(sized(layout=HEADS), ("gpu", (4, 0), (2, 3))),
    _swaps(sized(layout=BESIDE), ("gpu", (4, 0), (2, 3))),
    _swaps(sized(num_layers=1, layout=HEADS), ("gpu", (3, 1))),
    _swaps(sized(dtype=2), ("gpu", (4, 1))),
    _swaps(sized(), ("gpu", (4, 0)), ("gpu",), ("cpu",)),
)


class _MoveWorld(PoolWorld):
    """What copying and swapping have in common: pairs of blocks."""

    def _draw(self, num_sources: int, num_destinations: int) -> Iterator[tuple[tuple[int, int], ...]]:
        """Some lists of pairs, no destination twice."""
        for _ in range(12):
            count = self.rng.randint(1, min(num_destinations, 4))
            yield tuple(
                (self.rng.randrange(num_sources), second) for second in self.rng.sample(range(num_destinations), count)
            )
        yield ()

    def move(self, line: str, case: _Move, moved: str, rest: str, *tensors: Tensor) -> None:
        """Call the learner's function with the tensors and the pairs, and compare."""
        pairs = list(case.pairs)
        told: dict[str, Any] = {"layers": counted(self.setup["num_layers"], "layer")}
        if pairs:
            told |= {"first": pairs[0][0], "second": pairs[0][1], "pairs": counted(len(pairs), "pair")}
        overwritten = [first for first, _ in pairs if first in {second for _, second in pairs}]
        told["overwritten"] = overwritten[0] if overwritten else None
        self.call([moved] if pairs else [rest], line, case, *tensors, pairs, **told)
        right = case.right()
        for name, pool in self.pools.items():
            pool.account = right[name]
        destination = self.pools[case.destination]
        places = destination.sizes.places([second for _, second in case.pairs])
        self.compare(case, [(moved, case.destination, places)] if pairs else [], rest, {}, **told)
        self.log.hold(KEEPS, pairs == [*case.pairs], "`pairs` should stay as they were", f"they are {show(pairs)}")
        self.answered |= bool(pairs)

    def case(self, source: str, destination: str, pairs: tuple[tuple[int, int], ...]) -> _Move:
        """What is asked, with the pools as they are."""
        return _Move(
            {name: pool.account for name, pool in self.pools.items()},
            source,
            destination,
            pairs,
            {name: pool.sizes for name, pool in self.pools.items()},
            {name: pool.indices for name, pool in self.pools.items()},
            self.strided,
        )


class _CopyWorld(_MoveWorld):
    """One pool, in which blocks are copied."""

    thoughts, examples = COPY_THOUGHTS, COPY_EXAMPLES

    def __init__(self, subject: Any, setup: Setup, log: Log) -> None:
        super().__init__(subject, setup, log)
        self.make("kv_cache", setup["layout"])

    def calls(self) -> Iterable[Operation]:
        num_blocks = self.setup["num_blocks"]
        for pairs in self._draw(num_blocks, num_blocks):
            others = tuple(pair for pair in pairs if pair[0] != pair[1])
            if others or not pairs:
                yield "copy_blocks", others
        if num_blocks > 2:
            a, b, c = self.rng.sample(range(num_blocks), 3)
            yield from (("copy_blocks", pairs) for pairs in (((a, b), (b, c)), ((a, b), (b, a)), ((b, c), (a, b))))

    def traits(self, case: _Move) -> frozenset[str]:
        """Memory in another order, blocks that are read and written, no pairs."""
        chained = bool({first for first, _ in case.pairs} & {second for _, second in case.pairs})
        return frozenset(["strided"] * case.strided + ["chained"] * chained + ["none"] * (not case.pairs))

    def possible(self, operation: Operation) -> bool:
        """No pairs, only once something has been copied."""
        _, pairs = operation
        return all(block < self.setup["num_blocks"] for pair in pairs for block in pair) and (
            self.answered or bool(pairs)
        )

    def _copy_blocks(self, pairs: tuple[tuple[int, int], ...]) -> None:
        case = self.case("kv_cache", "kv_cache", pairs)
        chained = {first for first, _ in pairs} & {second for _, second in pairs}
        moved = AS_ONE if chained else STRIDED if self.strided else COPIED
        rest = NOTHING_ELSE if pairs else NO_PAIRS
        self.move(f"copy_blocks(kv_cache, {list(pairs)})", case, moved, rest, self.pools["kv_cache"].tensor())


class _SwapWorld(_MoveWorld):
    """Two pools of different sizes; blocks go out and come back."""

    thoughts, examples = SWAP_THOUGHTS, SWAP_EXAMPLES

    def __init__(self, subject: Any, setup: Setup, log: Log) -> None:
        super().__init__(subject, setup, log)
        self.make("gpu", setup["layout"])
        self.make("cpu", BLOCKS if self.strided else ROWS, num_blocks=setup["num_cpu_blocks"])

    def _num_blocks(self, name: str) -> int:
        return self.setup["num_blocks" if name == "gpu" else "num_cpu_blocks"]

    def calls(self) -> Iterable[Operation]:
        for source, destination in (("gpu", "cpu"), ("cpu", "gpu")):
            for pairs in self._draw(self._num_blocks(source), self._num_blocks(destination)):
                yield "swap_blocks", source, destination, pairs

    def traits(self, case: _Move) -> frozenset[str]:
        """Memory in another order, no pairs."""
        return frozenset(["strided"] * case.strided + ["none"] * (not case.pairs))

    def possible(self, operation: Operation) -> bool:
        """What comes back, and no pairs, only once something has gone out."""
        _, source, destination, pairs = operation
        fits = all(a < self._num_blocks(source) and b < self._num_blocks(destination) for a, b in pairs)
        return fits and (self.answered or (source == "gpu" and bool(pairs)))

    def _swap_blocks(self, source: str, destination: str, pairs: tuple[tuple[int, int], ...]) -> None:
        case = self.case(source, destination, pairs)
        moved = BACK if source == "cpu" else STRIDED if self.strided else SWAPPED
        tensors = (self.pools[source].tensor(), self.pools[destination].tensor())
        line = f"swap_blocks({source}, {destination}, {list(pairs)})"
        self.move(line, case, moved, NOTHING_ELSE if pairs else NO_PAIRS, *tensors)


STEPS = (
    Step(
        exercise_id="09-copy",
        title="carry out copy on write",
        points=2,
        subject="copy_blocks",
        reference=(plain_cache.copy_blocks, kv_cache.KVCache.copy),
        properties=(COPIED, AS_ONE, STRIDED, NOTHING_ELSE, NO_PAIRS, KEEPS),
        misconceptions={
            "not-in-place": "The pool that you are given is the memory that attention reads, so copy inside it: yours "
            "left it as it was, and nobody looks at what is returned.",
            "written-into-a-copy": "Where memory lies in another order, `reshape` makes a copy, and yours copied "
            "inside that: here the pool is unchanged; index the pool itself.",
            "viewed": "A pool can be a view in another order than its memory; `view` refuses that, and `reshape`, "
            "which torch suggests, would write into a copy: index the pool's axis of blocks.",
            "first-layer-only": "A block has keys and values in every layer, and this pool has {layers}: yours copied "
            "those of the first.",
            "values-left-out": "A block holds keys and values, both sides of the second axis: yours copied the keys "
            "only, and attention would weigh old values.",
            "first-pair-only": "All pairs are copied, and here are {pairs}: yours stopped after the first.",
            "blocks-exchanged": "A copy leaves the source as it was, since somebody still reads it: yours exchanged "
            "the two blocks.",
            "source-cleared": "A copy leaves the source as it was, since somebody still reads it: yours emptied it.",
            "read-after-write": "The pairs are meant as one: block {overwritten} is read by one pair and overwritten "
            "by another, so read all sources before you write, and keep what you read (a slice is no copy).",
            "pair-turned-round": "A pair is (source, destination): ({first}, {second}) copies block {first} to block "
            "{second}, and nothing goes the other way: yours wrote into block {first}.",
            "another-axis": "A pool is [num_layers, 2, num_blocks, …]: blocks are counted on its third axis, and "
            "yours used their numbers on another.",
            "no-pairs-refused": "Most steps have nothing to copy: no pairs change nothing, and yours ended in {error}.",
        },
        world=_CopyWorld,
        examples=COPY_EXAMPLES,
        setups=random_sizes,
    ),
    Step(
        exercise_id="09-swap",
        title="carry out a swap",
        points=1,
        subject="swap_blocks",
        reference=(
            plain_cache.swap_blocks,
            kv_cache.KVCache.swap_out,
            kv_cache.KVCache.swap_in,
            kv_cache._copy_blocks,
        ),
        properties=(SWAPPED, BACK, STRIDED, NOTHING_ELSE, NO_PAIRS, KEEPS),
        misconceptions={
            "not-in-place": "The pools that you are given are the memory itself, so write into the destination: yours "
            "left it as it was, and nobody looks at what is returned.",
            "written-into-a-copy": "Where memory lies in another order, `reshape` makes a copy, and yours wrote into "
            "that: here the destination is unchanged; index the pool itself.",
            "viewed": "A pool can be a view in another order than its memory; `view` refuses that, and `reshape`, "
            "which torch suggests, would write into a copy: index the pool's axis of blocks.",
            "first-layer-only": "A block has keys and values in every layer, and these pools have {layers}: yours "
            "swapped those of the first.",
            "values-left-out": "A block holds keys and values, both sides of the second axis: yours took the keys "
            "only.",
            "first-pair-only": "All pairs are swapped, and here are {pairs}: yours stopped after the first.",
            "blocks-exchanged": "To swap out is to copy to the other pool, and nothing comes the other way: yours "
            "exchanged the two blocks.",
            "source-cleared": "What is read stays as it was, since whose block it is next is for the block manager to "
            "say: yours emptied the source's blocks.",
            "pools-exchanged": "Numbers go from the first pool to the second, and nothing comes back: yours wrote old "
            "numbers over the blocks that were to be saved (a slice is a view, also on the right of an assignment).",
            "pair-turned-round": "A pair is (block of the source, block of the destination): ({first}, {second}) "
            "takes block {first} of the source to block {second} of the destination, and yours has them exchanged.",
            "same-number": "The two pools count their blocks each for itself: block {first} of the source goes to "
            "block {second} of the destination, and not to the one of its own number.",
            "within-one-pool": "There are two pools: a block is read in the source and written in the destination, "
            "and yours did both in one of them.",
            "no-pairs-refused": "Most steps have nothing to swap: no pairs change nothing, and yours ended in {error}.",
        },
        world=_SwapWorld,
        examples=SWAP_EXAMPLES,
        setups=random_sizes,
    ),
)

"""Pools of keys and values for checks: tensors in several orders of memory, amid memory that is not theirs.

No number occurs twice, in a pool or around it, so whatever stands in a wrong place says where it came from. The account
of a pool is a dict: layer, keys or values, block and offset -> numbers.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor

from refimpl.checks.memory_order import seen_in
from refimpl.checks.step import Log, Setup
from refimpl.checks.thoughts import ThoughtWorld

Values = tuple[float, ...]
Place = tuple[int, int, int, int]  # layer, 0 for keys and 1 for values, block, offset
State = dict[Place, Values]  # of a pool


@dataclass(frozen=True, slots=True)
class Layout:
    """An order of the axes in memory, and how one views such memory in the usual order: with all layers, or of one."""

    axes: str
    view: str
    view_of_one: str


AXES = "L2NBHD"  # of a pool, in the usual order
LAYOUTS = (
    Layout(AXES, "", ""),
    Layout("L2NHBD", ".transpose(3, 4)", ".transpose(2, 3)"),
    Layout("LN2BHD", ".transpose(1, 2)", ".transpose(0, 1)"),
    Layout("NL2HBD", ".movedim(0, 2).transpose(3, 4)", ".movedim(0, 1).transpose(2, 3)"),
)
ROWS, HEADS, BESIDE, BLOCKS = range(len(LAYOUTS))  # HEADS and BLOCKS are refimpl's GPU and CPU pool
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
MARGIN = 7  # numbers before and behind a pool that are not the pool's
DISTINCT = 30 * 128  # numbers of one sign that a dtype holds exactly
FINER = {torch.float32: 2.0**-3 + 2.0**-12, torch.float16: 2.0**-3, torch.bfloat16: 0.0}  # by the last digits they hold
STRIDED = "it works on views of memory in another order"
NOTHING_ELSE = "nothing else changes"
KEEPS = "what is given to read stays as it was"
SIDES, TENSORS = ("keys", "values"), ("key", "value")


def distinct_number(index: int, dtype: torch.dtype) -> float:
    """The number at this index of DISTINCT, in float16's range, which no dtype with fewer digits holds exactly."""
    octave, place = divmod(index % DISTINCT, 128)
    return float((128 + place + FINER[dtype]) * 2.0 ** (octave - 21))


@dataclass(frozen=True, slots=True)
class Sizes:
    """The shape of a pool."""

    num_layers: int
    num_blocks: int
    block_size: int
    num_kv_heads: int
    head_dim: int

    @classmethod
    def of(cls, setup: Setup, **other: int) -> Sizes:
        """Those in the `setup` of a world, some replaced by `other` ones."""
        names = (field.name for field in dataclasses.fields(cls))
        return cls(**{name: other.get(name, setup[name]) for name in names})

    @property
    def axes(self) -> dict[str, int]:
        """A letter for each axis -> its size."""
        return dict(zip(AXES, (self.num_layers, 2, *dataclasses.astuple(self)[1:]), strict=True))

    def places(self, blocks: Iterable[int] | None = None) -> list[Place]:
        """Every place of the pool, or of some blocks."""
        wanted = range(self.num_blocks) if blocks is None else blocks
        return list(itertools.product(range(self.num_layers), range(2), wanted, range(self.block_size)))


class Pool:
    """A pool of these sizes with other memory around it; `account` is what must stand in it.

    All its numbers differ, from number `first` on. `layout` is a place in LAYOUTS.
    """

    def __init__(self, sizes: Sizes, layout: int, dtype: torch.dtype, first: int) -> None:
        self.sizes, self.dtype, self._layout = sizes, dtype, layout
        axes = LAYOUTS[layout].axes
        guards = 0 if layout == ROWS else 1  # blocks at either end that are not the pool's; plain rows have none inside
        self._guards, self._axis = guards, axes.index("N")
        self._shape = [sizes.axes[axis] + (2 * guards if axis == "N" else 0) for axis in axes]
        self.num_numbers = prod(self._shape) + 2 * MARGIN
        self.memory = torch.tensor([distinct_number(first + i, dtype) for i in range(self.num_numbers)], dtype=dtype)
        self.indices = self._seen_in(torch.arange(self.num_numbers))
        rows = self.indices.flatten(4).tolist()
        self._rows: dict[Place, list[int]] = {
            place: rows[place[0]][place[1]][place[2]][place[3]] for place in sizes.places()
        }
        inside = {index for row in self._rows.values() for index in row}
        self._outside = [index for index in range(self.num_numbers) if index not in inside]
        self.account, self.around = self.read()

    def _seen_in(self, memory: Tensor) -> Tensor:
        """The pool in a piece of memory, its axes in the usual order."""
        pool = memory[MARGIN:-MARGIN].view(self._shape)
        return seen_in(pool.narrow(self._axis, self._guards, self.sizes.num_blocks), LAYOUTS[self._layout].axes, AXES)

    def tensor(self) -> Tensor:
        """[num_layers, 2, num_blocks, block_size, num_kv_heads, head_dim]: what the learner's function is given."""
        return self._seen_in(self.memory)

    def read(self) -> tuple[State, list[float]]:
        """What stands in the pool now, and what stands around it."""
        numbers = self.memory.tolist()
        state = {place: tuple([numbers[index] for index in row]) for place, row in self._rows.items()}
        return state, [numbers[index] for index in self._outside]

    def made_by(self, *, layers: bool) -> str:
        """How a learner would make such a tensor, of all layers or of one."""
        layout = LAYOUTS[self._layout]
        sizes = ", ".join(str(self.sizes.axes[axis]) for axis in layout.axes if layers or axis != "L")
        dtype = "" if self.dtype is torch.float32 else f", dtype={self.dtype}"
        return f"torch.empty({sizes}{dtype}){layout.view if layers else layout.view_of_one}"


def sized(**sizes: int) -> Setup:
    """Sizes of a pool, no two of them the same."""
    usual = {"num_blocks": 6, "block_size": 4, "num_kv_heads": 2, "head_dim": 3, "num_layers": 2, "num_cpu_blocks": 5}
    return {**usual, "layout": ROWS, "dtype": 0, **sizes}


def random_sizes(rng: random.Random) -> Setup:
    """Small pools of any layout and dtype."""
    return {
        "num_blocks": rng.randint(2, 6),
        "block_size": rng.choice((1, 2, 3, 4)),
        "num_kv_heads": rng.randint(1, 3),
        "head_dim": rng.randint(1, 4),
        "num_layers": rng.randint(1, 3),
        "num_cpu_blocks": rng.randint(2, 6),
        "layout": rng.randrange(len(LAYOUTS)),
        "dtype": rng.randrange(3),
    }


def only_if(error: type[Exception], fails: Callable[[Any], bool]) -> Callable[[Any], dict[str, State]]:
    """Right, but for cases in which it `fails` with an error."""

    def does(case: Any) -> dict[str, State]:
        if fails(case):
            raise error
        right: dict[str, State] = case.right()
        return right

    return does


class PoolWorld(ThoughtWorld):
    """Pools made by the check, what must stand in each, and in words what numbers are.

    `setup` and `log` are as in `World`.
    """

    layers = True  # whether the learner's function sees all of them

    def __init__(self, subject: Any, setup: Setup, log: Log) -> None:
        super().__init__(subject, setup, log)
        self.pools: dict[str, Pool] = {}
        self.strided = setup["layout"] != ROWS
        self.rng = random.Random(0)  # for histories of its own choosing; the engine's draws from what it yields

    def make(self, name: str, layout: int, **sizes: int) -> None:
        """A new pool of this name, layout and these sizes; no two pools hold the same number."""
        first = sum(pool.num_numbers for pool in self.pools.values())
        pool = Pool(Sizes.of(self.setup, **sizes), layout, DTYPES[self.setup["dtype"]], first)
        self.pools[name] = pool
        self.log.note(f"{name} = {pool.made_by(layers=self.layers)}")

    def compare(
        self,
        case: Any,
        moved: Iterable[tuple[str, str, list[Place]]],
        rest: str,
        more_names: dict[Values, str],
        **told: Any,
    ) -> None:
        """Compare the pools with their accounts: first what should have moved, then all the rest.

        `moved` says property, pool and places. `more_names` says what numbers are that were in no pool before; `told`
        fills in the thought's sentence.
        """
        found = {name: pool.read() for name, pool in self.pools.items()}
        states = {name: state for name, (state, _) in found.items()}
        self.seen.append((case, ("did", states)))
        before: dict[str, State] = case.states
        all_right = all(pool.account == states[name] for name, pool in self.pools.items())
        thought = None if all_right else self.thought()
        names = {} if all_right else {**self._names(before), **more_names}
        everything = [(rest, name, pool.sizes.places()) for name, pool in self.pools.items()]
        for prop, name, places in (*moved, *everything):
            account = self.pools[name].account
            place = next((place for place in places if states[name][place] != account[place]), None)
            should = but = ""
            if place is not None:
                should = f"{self._said(name, place)} should be {names.get(account[place], 'other numbers')}"
                same = states[name][place] == before[name][place]
                but = "they are as before" if same else f"they are {names.get(states[name][place], 'other numbers')}"
                if account[place] == before[name][place]:
                    should = f"{self._said(name, place)} should stay as they were"
            self.log.hold(prop, place is None, should, but, thought, **told)
        for name, pool in self.pools.items():
            same = found[name][1] == pool.around
            self.log.hold(rest, same, "only the pool should be written", "memory beside it has changed", None, **told)

    def _names(self, before: dict[str, State]) -> dict[Values, str]:
        return {
            numbers: f"what {self._said(name, place)} were before"
            for name, state in before.items()
            for place, numbers in state.items()
        }

    def _said(self, name: str, place: Place) -> str:
        """A place, in words."""
        layer, side, block, offset = place
        of_layer = f" of layer {layer}" if self.layers and self.setup["num_layers"] > 1 else ""
        in_pool = f" of `{name}`" if len(self.pools) > 1 else ""
        return f"the {SIDES[side]}{of_layer} in block {block}{in_pool}, offset {offset},".rstrip(",")

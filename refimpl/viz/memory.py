"""A whole block manager at one moment: a grid for each device, one legend, the same letter for a sequence on both.

Reads the manager through `simulation.recording`, so by the names that a learner's own has, too. A sequence's letter
follows from its name and its place among the names, never from the device that it is on.
"""

from collections.abc import Mapping
from typing import Any

from refimpl.block import Device
from refimpl.simulation.recording import MemoryReader, PoolState
from refimpl.viz.owners import letters
from refimpl.viz.pool import (
    BLOCK_LIMITS,
    COLUMN_LIMITS,
    GAP,
    PITCH,
    Pool,
    draw_grid,
    grid_width,
    legend,
    snapshot,
)
from refimpl.viz.sheet import ALARM, MARGIN, MIN_WIDTH, Picture, Sheet
from refimpl.viz.words import check_limits, count_of, one_line

FEW_BLOCKS = 256  # up to here 16 columns will do


def memory(
    source: Any, *, names: Mapping[Any, str] | None = None, columns: int | None = None, title: str | None = None
) -> Picture:
    """Draw all memory of a block manager: each device's blocks, who holds them, and what the manager miscounts.

    `source` is anything with BlockSpaceManager's `block_tables`, `block_size`, `gpu_allocator`, `cpu_allocator` and
    counts of free blocks; or a recorded `Step`; or a `MemoryReader`, which knows from earlier readings which free
    blocks keep their content. `names` maps a sequence (its seq_id in a manager, its name in a step) to the name to be
    shown. `columns` is the number of blocks in a row: 16 when left out, 32 where a pool has more than 256 blocks.

    Returns a `Picture`; its `describe()` says the same in words. ValueError when a block number lies outside its pool
    or a page cannot show so many blocks (0 to 2048 on each device); TypeError for anything else than such a source.

    >>> from refimpl import BlockSpaceManager, Sequence, SequenceGroup
    >>> manager = BlockSpaceManager(block_size=4, num_gpu_blocks=4, num_cpu_blocks=2)
    >>> manager.allocate(SequenceGroup("a", [Sequence(0, [1, 2, 3, 4, 5], block_size=4)]))
    >>> memory(manager, names={0: "A"})
    GPU pool: 4 blocks, 2 free
    A holds 2 blocks: 3, 2
    Free: 0 to 1
    CPU pool: 2 blocks, 2 free
    Free: 0 to 1
    """
    states = read_pools(source, names or {})
    for state in states:
        check_limits(f"the {state.device}'s number of blocks", state.num_blocks, (0, BLOCK_LIMITS[1]))
    most = max(state.num_blocks for state in states)
    if columns is None:
        columns = 16 if most <= FEW_BLOCKS else 32
    check_limits("columns", columns, COLUMN_LIMITS)
    heading = one_line(title)
    pools = pools_of(states)
    text = [heading] * bool(heading)
    for state, pool in zip(states, pools, strict=True):
        text += pool.describe() + _miscount(state, pool)
    return Picture("\n".join(text), _draw(states, pools, min(columns, max(most, 1)), heading))


def read_pools(source: Any, names: Mapping[Any, str]) -> list[PoolState]:
    """The GPU's and the CPU's pool of `source`: a block manager, a recorded step or a MemoryReader.

    Raises:
        TypeError: for an object that is none of them.
    """
    if not hasattr(source, "block_tables") and all(hasattr(source, name) for name in ("gpu", "cpu")):
        return [_renamed(source.gpu, names), _renamed(source.cpu, names)]
    reader = source if hasattr(source, "read") else None
    if reader is None:
        asked = ("block_tables", "get_num_free_gpu_blocks", "get_num_free_cpu_blocks")
        missing = [name for name in asked if not hasattr(source, name)]
        if missing:
            raise TypeError(
                f"a {type(source).__name__} has no {' and no '.join(missing)}; pass a block manager, "
                f"a recorded step or a MemoryReader"
            )
        reader = MemoryReader(source)
    shown = {seq_id: one_line(name) for seq_id, name in names.items()}
    return [reader.read(device, shown) for device in (Device.GPU, Device.CPU)]


def _renamed(state: PoolState, names: Mapping[Any, str]) -> PoolState:
    tables = {one_line(names.get(name, name)): table for name, table in state.tables.items()}
    return PoolState(state.device, state.num_blocks, state.num_free, tables, state.cached)


def pools_of(states: list[PoolState]) -> list[Pool]:
    """What a picture needs of each pool, with one letter for a sequence in all of them."""
    names = list(dict.fromkeys(name for state in states for name in state.tables))
    marks = dict(zip(names, letters(names), strict=True))
    return [snapshot(state.num_blocks, state.tables, state.device, state.cached, marks) for state in states]


def _miscount(state: PoolState, pool: Pool) -> list[str]:
    """What is wrong when the manager's count of free blocks is not the number of blocks in no table."""
    if state.num_free == len(pool.free):
        return []
    said = f"the manager counts {count_of(state.num_free, f'free {state.device} block')}"
    return [f"Mismatch: {said}, and {count_of(len(pool.free), 'block')} {_is(len(pool.free))} in no table"]


def _is(count: int) -> str:
    return "is" if count == 1 else "are"


def _draw(states: list[PoolState], pools: list[Pool], columns: int, title: str) -> Sheet:
    sheet = Sheet(max(MIN_WIDTH, grid_width(columns)))
    room = sheet.width - 2 * MARGIN
    y = sheet.titles(title, "") if title else MARGIN - 3
    for state, pool in zip(states, pools, strict=True):
        y += 10
        sheet.words(MARGIN, y, pool.headline, 12, bold=True, room=room)
        for line in _miscount(state, pool):
            y += 19
            sheet.words(MARGIN, y, line, 11, bold=True, room=room, colour=ALARM)
        y = draw_grid(sheet, pool, MARGIN, y + 14, columns) + PITCH // 4 - GAP
    sheet.height = sheet.legend(legend(pools), y + 5) + MARGIN
    return sheet

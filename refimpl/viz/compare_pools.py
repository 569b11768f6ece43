"""Two pools, or the two devices of two managers, side by side: blocks that differ are ringed in both.

A block differs when other sequences hold it, when its ref_count is another, or when only one of the two keeps its
content. A sequence has the same letter on both sides.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from refimpl.simulation.recording import PoolState
from refimpl.viz.memory import pools_of, read_pools
from refimpl.viz.pool import GAP, PITCH, SIDE, Cell, Pool, draw_grid, grid_width, legend
from refimpl.viz.sheet import KEY_HEIGHT, KEY_WIDTH, MARGIN, Key, Picture, Sheet
from refimpl.viz.words import check_limits, count_of, one_line

BLOCK_LIMITS = (0, 256)
SIDE_BY_SIDE, COLUMNS = 64, (8, 16)  # blocks up to which two grids of the first width stand side by side
BETWEEN = 36  # CSS pixels


def compare_pools(
    yours: Any, target: Any, num_blocks: int | None, device: object, names: Mapping[Any, str], title: str
) -> Picture:
    """The picture of two managers, or of two dicts name -> blocks in pools of `num_blocks`; see `compare`."""
    if num_blocks is None:
        states = [read_pools(yours, names), read_pools(target, names)]
    else:
        name = str(getattr(device, "name", device))
        states = [[_state(tables, name, num_blocks)] for tables in (yours, target)]
    for state in (*states[0], *states[1]):
        check_limits(f"the {state.device}'s number of blocks", state.num_blocks, BLOCK_LIMITS, "compare the tables")
    pools = pools_of([*states[0], *states[1]])
    pairs = list(zip(pools[: len(states[0])], pools[len(states[0]) :], strict=True))
    lines = [line for pair in pairs for line in _differences(*pair)]
    headline = count_of(len(lines), "difference") if lines else "No difference"
    text = [title] * bool(title) + [headline]
    for side, pool in [(side, pool) for pair in pairs for side, pool in zip(("yours", "target"), pair, strict=True)]:
        text += [f"{side}: {line}" for line in pool.describe()]
    return Picture("\n".join(text + lines), _draw(pairs, title, headline))


def _state(tables: Mapping[Any, Sequence[Any]], device: str, num_blocks: int) -> PoolState:
    return PoolState(device, num_blocks, 0, {one_line(name): tuple(table) for name, table in tables.items()})


def _differences(yours: Pool, target: Pool) -> list[str]:
    """A line for each block that differs, and one where the pools are not of one size."""
    lines = []
    if len(yours.cells) != len(target.cells):
        lines.append(f"{yours.device} pool: yours has {len(yours.cells)} blocks, target {len(target.cells)}")
    for number in _different(yours, target):
        sides = (_holding(pool, pool.cells[number]) for pool in (yours, target))
        lines.append(f"{yours.device} block {number}: yours {next(sides)}, target {next(sides)}")
    return lines


def _different(yours: Pool, target: Pool) -> list[int]:
    """Numbers of the blocks that are in both pools and differ."""
    cells = zip(yours.cells, target.cells, strict=False)
    return [mine.number for mine, theirs in cells if _holding(yours, mine) != _holding(target, theirs)]


def _holding(pool: Pool, cell: Cell) -> str:
    if not cell.owners:
        return "free, content kept" if cell.cached else "free"
    letters = sorted(pool.owners[index].place(cell.number) for index in cell.owners)
    return f"{' '.join(letters)} (ref_count {'/'.join(map(str, cell.ref_counts))})"


def _draw(pairs: Sequence[tuple[Pool, Pool]], title: str, headline: str) -> Sheet:
    most = max(len(pool.cells) for pair in pairs for pool in pair)
    beside = most <= SIDE_BY_SIDE
    columns = min(COLUMNS[0] if beside else COLUMNS[1], max(most, 5))
    right = MARGIN + columns * PITCH - GAP + BETWEEN
    sheet = Sheet(max(420, right + columns * PITCH - GAP + MARGIN if beside else grid_width(columns)))
    y = sheet.titles(title, headline) + 8
    for yours, target in pairs:
        ringed = _different(yours, target)
        end = _draw_side(sheet, "yours", yours, ringed, (MARGIN, y), columns)
        start = (right, y) if beside else (MARGIN, end + 8)
        y = max(end, _draw_side(sheet, "target", target, ringed, start, columns)) + 16
    entries = _legend(pairs)
    sheet.height = (sheet.legend(entries, y) if entries else y) + MARGIN
    return sheet


def _draw_side(sheet: Sheet, name: str, pool: Pool, ringed: Sequence[int], start: tuple[int, int], columns: int) -> int:
    """One of the two grids; returns where it ends."""
    left, y = start
    room = columns * PITCH - GAP
    sheet.words(left, y, f"{name}: {pool.headline}", 11, bold=True, room=room)
    for number in ringed:
        row, column = divmod(number, columns)
        sheet.ring(left + column * PITCH - 1, y + 14 + row * PITCH - 1, SIDE + 2, SIDE + 2)
    return draw_grid(sheet, pool, left, y + 14, columns)


def _legend(pairs: Sequence[tuple[Pool, Pool]]) -> list[tuple[Key, str]]:
    """Each owner once; the ring where anything differs."""
    keys: dict[str, Key] = {}
    for pair in pairs:
        for key, text in legend(pair):
            keys.setdefault(text.split(":")[0], key)
    differs = [(ring_key, "differs")] * any(_different(*pair) for pair in pairs)
    return [(key, text) for text, key in keys.items()] + differs


def ring_key(sheet: Sheet, x: float, y: float) -> None:
    """The key of what differs, drawn on `sheet`."""
    sheet.ring(x + 2, y + 2, KEY_WIDTH - 4, KEY_HEIGHT - 4)

"""One device's blocks as a grid: who holds each, which are shared, which are free, and where a count is wrong.

The grid stands in block order and shows every block of the pool exactly once. It is a snapshot of live objects, read
by what any learner's block has. Whole managers and comparisons are drawn with the same cells, by `draw_cell`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from refimpl.viz.owners import Block, Owner, fill, letters, owner_key
from refimpl.viz.sheet import (
    FOOT,
    INK,
    KEY_HEIGHT,
    KEY_WIDTH,
    LINE,
    MARGIN,
    MIN_WIDTH,
    PAPER,
    QUIET,
    Key,
    Picture,
    Sheet,
)
from refimpl.viz.words import check_limits, count_of, listed, one_line, ranges

SIDE, GAP, STRIP = 39, 5, 10  # CSS pixels
PITCH = SIDE + GAP
BLOCK_LIMITS, COLUMN_LIMITS = (1, 2048), (4, 64)
MOST_BANDS = 3  # owners that a block has room to show by letter
KEPT = "#ececec"


def pool(
    num_blocks: int,
    tables: Mapping[Any, Sequence[Block]],
    *,
    cached: Iterable[Any] = (),
    device: object = "GPU",
    columns: int = 16,
    title: str | None = None,
) -> Picture:
    """Draw one device's blocks: who holds each, which are shared, and where a count is wrong.

    `num_blocks` is the size of the pool in blocks. `tables` maps a sequence's name to its block table, a list
    of anything with `block_number` and `ref_count`, all on this `device`; a block in no table is drawn free.
    `cached` are the free blocks whose content is known and kept, as numbers or as blocks.
    A block is ringed where its `ref_count` is not the number of tables that hold it, where two different
    objects carry its number, or where it is both cached and held. `columns` is the number of blocks in a row;
    `title` stands above the headline.

    Returns a `Picture`; its `describe()` says the same in words. ValueError when a block number lies outside
    the pool, or when a page cannot show so many blocks (1 to 2048) or columns (4 to 64).

    >>> from types import SimpleNamespace
    >>> shared = SimpleNamespace(block_number=3, ref_count=2)
    >>> last = SimpleNamespace(block_number=2, ref_count=1)
    >>> pool(4, {"A": [shared], "B": [shared, last]})
    GPU pool: 4 blocks, 2 free
    A holds 1 block: 3
    B holds 2 blocks: 3, 2
    Shared: block 3 by A and B (ref_count 2)
    Free: 0 to 1

    Block tables over one pool: section 4.3 of the PagedAttention paper (Kwon et al., 2023).
    """
    check_limits("num_blocks", num_blocks, BLOCK_LIMITS)
    check_limits("columns", columns, COLUMN_LIMITS)
    heading = one_line(title)
    state = snapshot(num_blocks, tables, str(getattr(device, "name", device)), cached)
    text = "\n".join([heading] * bool(heading) + state.describe())
    return Picture(text, _draw(state, min(columns, num_blocks), heading))


@dataclass(frozen=True, slots=True)
class Cell:
    """The block `number` of a pool; `cached`: whether it is said to be free with its content kept."""

    number: int
    owners: tuple[int, ...]  # indices of the tables that hold this block
    ref_counts: tuple[int, ...]  # of each block object that carries this number; there should be one
    cached: bool

    @property
    def agrees(self) -> bool:
        """Whether what the block says of itself is what the tables say."""
        return not self.owners or (self.ref_counts == (len(self.owners),) and not self.cached)

    @property
    def shared(self) -> bool:
        """Whether several tables hold it, as they should."""
        return self.agrees and len(self.owners) > 1

    @property
    def disagreement(self) -> str:
        """What does not agree, in a few signs: the ref_count (or that it is free) against the number of tables."""
        said = "free" if self.cached else "/".join(map(str, self.ref_counts))
        return f"{said}≠{len(self.owners)}"


@dataclass(frozen=True, slots=True)
class Pool:
    """One device's blocks as plain numbers: a cell for each, and the owners that cells name by index."""

    device: str
    owners: tuple[Owner, ...]
    cells: tuple[Cell, ...]

    @property
    def free(self) -> list[int]:
        """Numbers of the blocks that no table holds."""
        return [cell.number for cell in self.cells if not cell.owners]

    @property
    def kept(self) -> list[int]:
        """Numbers of the free blocks whose content is kept."""
        return [cell.number for cell in self.cells if cell.cached and not cell.owners]

    @property
    def headline(self) -> str:
        """The pool in one line."""
        kept = f", {len(self.kept)} of them cached" if self.kept else ""
        return f"{self.device} pool: {count_of(len(self.cells), 'block')}, {len(self.free)} free{kept}"

    def names(self, cell: Cell) -> str:
        """The letters of a block's owners."""
        return listed([self.owners[index].letter for index in cell.owners])

    def describe(self) -> list[str]:
        """The pool in words, one fact a line."""
        lines = [self.headline]
        for owner in self.owners:
            lines.append(f"{owner.label} holds {owner.size}: {', '.join(map(str, owner.block_numbers)) or 'none'}")
        shared = [cell for cell in self.cells if cell.shared]
        if shared:
            parts = (f"block {c.number} by {self.names(c)} (ref_count {len(c.owners)})" for c in shared)
            lines.append(f"Shared: {'; '.join(parts)}")
        lines += [self._mismatch(cell) for cell in self.cells if not cell.agrees]
        for owner in self.owners:
            times = sorted(Counter(owner.block_numbers).items())
            lines += [f"Repeated: {owner.label} lists block {n} {count} times" for n, count in times if count > 1]
        lines.append(f"Free: {ranges(self.free)}")
        return lines + [f"Free, content kept (cached): {ranges(self.kept)}"] * bool(self.kept)

    def _mismatch(self, cell: Cell) -> str:
        counts = listed([str(count) for count in cell.ref_counts])
        objects = f" on {len(cell.ref_counts)} different objects" if len(cell.ref_counts) > 1 else ""
        tables = "1 table holds" if len(cell.owners) == 1 else f"{len(cell.owners)} tables hold"
        said = "is given as cached and free" if cell.cached else f"has ref_count {counts}{objects}"
        return f"Mismatch: block {cell.number} {said}, and {tables} it ({self.names(cell)})"


def snapshot(
    num_blocks: int,
    tables: Mapping[Any, Sequence[Block]],
    device: str,
    cached: Iterable[Any] = (),
    marks: Mapping[Any, str] | None = None,
) -> Pool:
    """What a picture of the pool needs, copied from live objects.

    `cached` are free blocks whose content is kept, `marks` gives letters (name -> letter).

    ValueError for a block number outside the pool.
    """
    names = [one_line(name) for name in tables]
    owners: list[Owner] = []
    holders: list[list[int]] = [[] for _ in range(num_blocks)]
    objects: list[dict[int, int]] = [{} for _ in range(num_blocks)]  # id of a block object -> its ref_count
    given = letters(names) if marks is None else [marks[key] for key in tables]
    for index, (name, letter, table) in enumerate(zip(names, given, tables.values(), strict=True)):
        for block in table:
            number = _checked(block.block_number, num_blocks, f"in table {name!r}", device)
            if index not in holders[number]:
                holders[number].append(index)
            objects[number][id(block)] = block.ref_count
        owners.append(Owner(name, letter, tuple(block.block_number for block in table)))
    kept = {_checked(getattr(block, "block_number", block), num_blocks, "in cached", device) for block in cached}
    cells = [Cell(n, tuple(holders[n]), tuple(objects[n].values()), n in kept) for n in range(num_blocks)]
    return Pool(device, tuple(owners), tuple(cells))


def _checked(number: Any, num_blocks: int, where: str, device: str) -> int:
    if number not in range(num_blocks):
        raise ValueError(
            f"block number {number} {where}: this {device} pool has the numbers 0 to {num_blocks - 1}; "
            f"pass the pool's size as num_blocks, and blocks of this device only"
        )
    return int(number)


def _draw(state: Pool, columns: int, title: str) -> Sheet:
    sheet = Sheet(max(MIN_WIDTH, grid_width(columns)))
    bottom = draw_grid(sheet, state, MARGIN, sheet.titles(title, state.headline), columns)
    sheet.height = sheet.legend(legend([state]), bottom + 11) + MARGIN
    return sheet


def grid_width(columns: int) -> int:
    """The width of a sheet that holds a grid."""
    return 2 * MARGIN + columns * PITCH - GAP


def draw_grid(sheet: Sheet, state: Pool, left: int, top: int, columns: int) -> int:
    """Draw every block on `sheet`, in rows of `columns` from `left`, `top`; returns where the next row would begin."""
    for cell in state.cells:
        row, column = divmod(cell.number, columns)
        draw_cell(sheet, state, cell, left + column * PITCH, top + row * PITCH)
    return top + -(-len(state.cells) // columns) * PITCH


def draw_cell(sheet: Sheet, state: Pool, cell: Cell, x: float, y: float) -> None:
    """Draw one block on `sheet`: its number, its owners side by side, and how many they are."""
    shown = cell.owners if len(cell.owners) <= MOST_BANDS else cell.owners[: MOST_BANDS - 1]
    places = [state.owners[index].place(cell.number) for index in shown] + ["…"] * (len(shown) < len(cell.owners))
    width = SIDE / max(1, len(places))
    for band, index in enumerate(shown):
        fill(sheet, state.owners[index], x + band * width, y, width, SIDE, STRIP)
    for band, place in enumerate(places):
        sheet.words(x + (band + 0.5) * width, y + 20.5, place, 12, bold=True, align=0.5, room=width - 2)
    sheet.words(x + 3, y + 7.5, str(cell.number), 9, room=SIDE / 2 - 2, colour=QUIET)
    if cell.shared:
        sheet.words(x + SIDE - 2, y + 7.5, f"×{len(cell.owners)}", 9, bold=True, align=1, room=SIDE / 2 - 3)
    if cell.cached and not cell.owners:
        _draw_kept(sheet, x, y, SIDE, SIDE)
    else:
        sheet.outline(x, y, SIDE, SIDE, INK if cell.owners else LINE)
    if not cell.agrees:
        _alarm(sheet, x, y, SIDE, SIDE, 12, cell.disagreement)


def _draw_kept(sheet: Sheet, x: float, y: float, width: float, height: float) -> None:
    """A free block whose content is kept: grey within a dashed edge, and the word for it."""
    sheet.box(x, y, width, height, facecolor=KEPT)
    sheet.outline(x, y, width, height, INK, linestyle=(0, (4, 2.5)))
    sheet.words(x + width / 2, y + height - 10, "kept", 9, align=0.5, room=width - 4)


def _alarm(sheet: Sheet, x: float, y: float, width: float, height: float, foot: float, counts: str) -> None:
    """A ring, and at the foot the number that ref_count says against the number of tables."""
    sheet.box(x, y + height - foot, width, foot, facecolor=PAPER, zorder=FOOT)
    sheet.words(x + width / 2, y + height - foot / 2, counts, 9, bold=True, align=0.5, room=width - 4)
    sheet.ring(x, y, width, height)


def legend(states: Sequence[Pool]) -> list[tuple[Key, str]]:
    """The keys of what is in the pools, each owner once; where there are several pools it says which it is in."""
    entries: list[tuple[Key, str]] = []
    for state in states:
        where = f" on the {state.device}" if len(states) > 1 else ""
        for owner in state.owners:
            first = f", {owner.letter}₀ first" if len(owner.block_numbers) > 1 else ""
            entries.append((owner_key(owner), f"{owner.short_name}: {owner.size}{where}{first}"))
    kept = sum(len(state.kept) for state in states)
    free = sum(len(state.free) for state in states) - kept
    if free:
        entries.append((_free_key, f"free{', nothing kept' if kept else ''}: {count_of(free, 'block')}"))
    if kept:
        entries.append((_kept_key, f"free, content kept (cached): {count_of(kept, 'block')}"))
    if any(cell.shared for state in states for cell in state.cells):
        entries.append((shared_key, "shared by n tables"))
    if not all(cell.agrees for state in states for cell in state.cells):
        entries.append((_alarm_key, "ref_count ≠ tables that hold it"))
    return entries


def _free_key(sheet: Sheet, x: float, y: float) -> None:
    sheet.outline(x, y, KEY_WIDTH, KEY_HEIGHT, LINE)


def _kept_key(sheet: Sheet, x: float, y: float) -> None:
    _draw_kept(sheet, x, y, KEY_WIDTH, KEY_HEIGHT)


def shared_key(sheet: Sheet, x: float, y: float) -> None:
    """The key of a block with several owners, drawn on `sheet`."""
    sheet.words(x + KEY_WIDTH / 2, y + KEY_HEIGHT / 2, "×n", 9, bold=True, align=0.5)
    sheet.outline(x, y, KEY_WIDTH, KEY_HEIGHT)


def _alarm_key(sheet: Sheet, x: float, y: float) -> None:
    sheet.outline(x, y, KEY_WIDTH, KEY_HEIGHT)
    _alarm(sheet, x, y, KEY_WIDTH, KEY_HEIGHT, KEY_HEIGHT, "1≠2")

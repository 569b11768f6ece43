"""Pictures drawn from live objects; each carries the same content as text.

A picture is a snapshot: it copies numbers when it is made and never changes with the objects it was made from.
It reads only what any learner's block has, `block_number` and `ref_count`, keeps no matplotlib figure open, and
tells nothing by colour alone.
"""

import html
import io
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle

# Okabe & Ito (2008), without black, which is the ink.
COLOURS = ("#E69F00", "#56B4E9", "#009E73", "#CC79A7", "#0072B2", "#D55E00", "#F0E442")
HATCHES = ("/////", "", ".....", "\\\\\\\\\\", "-----", "xxxxx", "|||||", "+++++")
INK, QUIET, LINE, PAPER = "#1a1a1a", "#595959", "#b8b8b8", "#ffffff"

PITCH, GAP, MARGIN, STRIP = 44, 5, 16, 9  # CSS pixels
LINE_HEIGHT, LEGEND_COLUMN, MIN_WIDTH = 22, 175, 382
LETTER_WIDTH = 8.6  # a wide letter of the title, in CSS pixels
MOST_BANDS = 3  # owners that a block has room to show by letter
CSS_DPI, SHARPNESS = 96, 2  # two image pixels for one CSS pixel


class Block(Protocol):
    """What a picture reads of a block; the reference's and any learner's have it."""

    @property
    def block_number(self) -> int: ...
    @property
    def ref_count(self) -> int: ...


class Picture:
    """Owns one drawing and its description in words, which say the same.

    Invariant: `describe()`, `repr()` and the size never change after the picture is made. In JupyterLab it shows
    as an image with the description folded below, because JupyterLab gives an image no alt text (4.6); the
    metadata carries it for the tools that read it there, nbconvert among them.
    """

    def __init__(self, text: str, width: int, height: int, paint: Callable[[Axes], None]) -> None:
        self._text = text
        self.width = width
        self.height = height
        self._paint = paint

    def describe(self) -> str:
        """The content of the picture as text, a fact a line; the same on every run."""
        return self._text

    def __repr__(self) -> str:
        return self._text

    def figure(self) -> Figure:
        """A new matplotlib figure, one data unit for one CSS pixel, y downwards; pyplot does not know of it."""
        figure = Figure(figsize=(self.width / CSS_DPI, self.height / CSS_DPI), dpi=CSS_DPI * SHARPNESS)
        figure.patch.set_alpha(0)
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set(xlim=(0, self.width), ylim=(self.height, 0))
        axes.axis("off")
        axes.add_patch(_card(self.width, self.height))
        self._paint(axes)
        return figure

    def png(self) -> bytes:
        """The picture as PNG, `SHARPNESS` times as many pixels as `width` and `height` say; the same bytes every time."""
        with matplotlib.rc_context({"font.family": "DejaVu Sans", "text.usetex": False, "hatch.linewidth": 1.1}):
            image = io.BytesIO()
            canvas = FigureCanvasAgg(self.figure())
            canvas.print_png(image, metadata={"Software": None}, pil_kwargs={"compress_level": 3})
        return image.getvalue()

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> tuple[dict[str, Any], dict[str, Any]]:
        size = {"alt": self._text, "width": self.width, "height": self.height}
        return {"image/png": self.png(), "text/plain": self._text}, {"image/png": size}

    def _ipython_display_(self) -> None:
        from IPython.display import display

        data, metadata = self._repr_mimebundle_()
        words = html.escape(self._text)
        folded = f"<details><summary>This picture in words</summary><pre>{words}</pre></details>"
        display(data, metadata=metadata, raw=True)
        display({"text/html": folded}, raw=True)


@dataclass(frozen=True, slots=True)
class _Owner:
    name: str
    letter: str
    block_numbers: tuple[int, ...]  # in table order; a number may come twice

    @property
    def label(self) -> str:
        return self.name if self.name == self.letter else f"{self.letter} ({self.name})"


@dataclass(frozen=True, slots=True)
class _Cell:
    number: int
    owners: tuple[int, ...]  # indices of the tables that hold this block
    ref_counts: tuple[int, ...]  # one for each block object that carries this number; one object is right

    @property
    def agrees(self) -> bool:
        return not self.owners or self.ref_counts == (len(self.owners),)


@dataclass(frozen=True, slots=True)
class _Pool:
    """One device's blocks as plain numbers."""

    device: str
    owners: tuple[_Owner, ...]
    cells: tuple[_Cell, ...]

    @property
    def num_held(self) -> int:
        return sum(bool(cell.owners) for cell in self.cells)

    @property
    def headline(self) -> str:
        return f"{self.device} pool: {_blocks(len(self.cells))}, {len(self.cells) - self.num_held} free"


def pool(
    num_blocks: int,
    tables: Mapping[Any, Sequence[Block]],
    *,
    device: object = "GPU",
    columns: int = 16,
    title: str | None = None,
) -> Picture:
    """Draw one device's blocks: who holds each, which are shared, and where a count is wrong.

    `num_blocks` is the size of the pool in blocks. `tables` maps a sequence's name to its block table, a list of
    anything with `block_number` and `ref_count`, all on this `device`; a block in no table is drawn free. A block
    whose `ref_count` is not the number of tables that hold it is ringed, and so is a number that two different
    objects carry. `columns` is the number of blocks in a row, `title` stands above the usual headline.

    Returns a `Picture`; `describe()` says the same in words. ValueError when a block number lies outside the pool,
    or when `num_blocks` or `columns` is below 1.

    >>> from types import SimpleNamespace
    >>> shared = SimpleNamespace(block_number=3, ref_count=2)
    >>> last = SimpleNamespace(block_number=2, ref_count=1)
    >>> pool(4, {"A": [shared], "B": [shared, last]})
    GPU pool: 4 blocks, 2 free
    A holds 1 block: 3
    B holds 2 blocks: 3, 2
    Shared: block 3 by A and B (ref_count 2)
    Free: 0 to 1

    What a block table is: section 4.2 of the PagedAttention paper (Kwon et al., 2023).
    """
    for name, value in (("num_blocks", num_blocks), ("columns", columns)):
        if value < 1:
            raise ValueError(f"{name} is {value}; a picture needs at least 1")
    snapshot = _snapshot(num_blocks, tables, str(getattr(device, "name", device)))
    painter = _PoolPainter(snapshot, min(columns, num_blocks), title)
    text = "\n".join(([title] if title else []) + _describe(snapshot))
    return Picture(text, painter.width, painter.height, painter.paint)


def _snapshot(num_blocks: int, tables: Mapping[Any, Sequence[Block]], device: str) -> _Pool:
    letters = _letters([str(name) for name in tables])
    owners: list[_Owner] = []
    holders: dict[int, list[int]] = {}  # block number -> indices of the tables that hold it
    objects: dict[int, dict[int, int]] = {}  # block number -> id of a block object -> its ref_count
    for index, (name, table) in enumerate(tables.items()):
        numbers = tuple(block.block_number for block in table)
        for block, number in zip(table, numbers, strict=True):
            if not 0 <= number < num_blocks:
                raise ValueError(
                    f"block number {number} in table {str(name)!r}: this {device} pool has the numbers 0 to "
                    f"{num_blocks - 1}; pass the pool's size as num_blocks and this device's tables only"
                )
            if index not in holders.setdefault(number, []):
                holders[number].append(index)
            objects.setdefault(number, {})[id(block)] = block.ref_count
        owners.append(_Owner(str(name), letters[index], numbers))
    cells = (
        _Cell(n, tuple(holders.get(n, ())), tuple(objects.get(n, {}).values())) for n in range(num_blocks)
    )
    return _Pool(device, tuple(owners), tuple(cells))


def _letters(names: Sequence[str]) -> list[str]:
    """A short mark for each table: its name where all names are one letter, else A, B, … Z, AA, AB, …"""
    if all(len(name) == 1 and name.isalpha() for name in names):
        return list(names)
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    return [(alphabet[i // 26 - 1] if i >= 26 else "") + alphabet[i % 26] for i in range(len(names))]


def _describe(pool: _Pool) -> list[str]:
    lines = [pool.headline]
    for owner in pool.owners:
        numbers = ", ".join(map(str, owner.block_numbers)) or "none"
        lines.append(f"{owner.label} holds {_blocks(len(set(owner.block_numbers)))}: {numbers}")
    shared = [_shared_in_words(pool, cell) for cell in pool.cells if len(cell.owners) > 1 and cell.agrees]
    if shared:
        lines.append("Shared: " + "; ".join(shared))
    lines += [_mismatch_in_words(pool, cell) for cell in pool.cells if not cell.agrees]
    for owner in pool.owners:
        twice = sorted({n for n in owner.block_numbers if owner.block_numbers.count(n) > 1})
        lines += [f"Repeated: {owner.label} lists block {n} {owner.block_numbers.count(n)} times" for n in twice]
    free = [cell.number for cell in pool.cells if not cell.owners]
    lines.append(f"Free: {_ranges(free)}")
    return lines


def _shared_in_words(pool: _Pool, cell: _Cell) -> str:
    return f"block {cell.number} by {_names(pool, cell)} (ref_count {cell.ref_counts[0]})"


def _mismatch_in_words(pool: _Pool, cell: _Cell) -> str:
    counts = " and ".join(map(str, cell.ref_counts))
    objects = f" on {len(cell.ref_counts)} different objects" if len(cell.ref_counts) > 1 else ""
    tables = "1 table holds" if len(cell.owners) == 1 else f"{len(cell.owners)} tables hold"
    return f"Mismatch: block {cell.number} has ref_count {counts}{objects}, but {tables} it ({_names(pool, cell)})"


def _names(pool: _Pool, cell: _Cell) -> str:
    *first, last = [pool.owners[index].letter for index in cell.owners]
    return f"{', '.join(first)} and {last}" if first else last


def _blocks(count: int) -> str:
    return f"{count} block" if count == 1 else f"{count} blocks"


def _ranges(numbers: Sequence[int]) -> str:
    """Ascending numbers as text: [0, 1, 2, 5] gives "0 to 2, 5"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 1 else str(run[0]) for run in runs) or "none"


class _PoolPainter:
    """Places a pool's title, block grid and legend on a card, top to bottom, in CSS pixels."""

    def __init__(self, pool: _Pool, columns: int, title: str | None) -> None:
        self.pool = pool
        self.columns = columns
        self.width = max(MIN_WIDTH, 2 * MARGIN + columns * PITCH - GAP)
        letters_a_line = int((self.width - 2 * MARGIN) / LETTER_WIDTH)
        self.titles = textwrap.wrap(title or pool.headline, letters_a_line)
        self.grid_top = MARGIN + len(self.titles) * LINE_HEIGHT + 6
        self.legend_top = self.grid_top + -(-len(pool.cells) // columns) * PITCH + 10
        self.legend = self._legend_entries()
        self.legend_columns = max(1, (self.width - 2 * MARGIN) // LEGEND_COLUMN)
        self.height = self.legend_top + -(-len(self.legend) // self.legend_columns) * LINE_HEIGHT + MARGIN - 6

    def _legend_entries(self) -> list[tuple[int | str, str]]:
        entries: list[tuple[int | str, str]] = [
            (index, f"{_shorten(owner.name)} · {_blocks(len(set(owner.block_numbers)))}")
            for index, owner in enumerate(self.pool.owners)
        ]
        if self.pool.num_held < len(self.pool.cells):
            entries.append(("free", f"free · {_blocks(len(self.pool.cells) - self.pool.num_held)}"))
        if any(len(cell.owners) > 1 and cell.agrees for cell in self.pool.cells):
            entries.append(("shared", "tables that share it"))
        if not all(cell.agrees for cell in self.pool.cells):
            entries.append(("ring", "ref_count ≠ tables"))
        return entries

    def paint(self, axes: Axes) -> None:
        for row, line in enumerate(self.titles):
            y = MARGIN + row * LINE_HEIGHT + 8
            axes.text(MARGIN, y, line, size=10.5, weight="bold", color=INK, va="center")
        bands: dict[int | str, list[tuple[float, float, float]]] = {}  # owner -> x, y, width of its bands
        for cell in self.pool.cells:
            x = MARGIN + cell.number % self.columns * PITCH
            y = self.grid_top + cell.number // self.columns * PITCH
            self._paint_cell(axes, cell, x, y, bands)
        for place, (key, words) in enumerate(self.legend):
            x = MARGIN + place % self.legend_columns * LEGEND_COLUMN
            y = self.legend_top + place // self.legend_columns * LINE_HEIGHT
            self._paint_legend_entry(axes, key, words, x, y)

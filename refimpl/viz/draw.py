"""Pictures drawn from live objects; each carries the same content as text.

A picture is a snapshot: it copies numbers when it is made and never changes with the objects behind it. It
reads only what any learner's block has, keeps no matplotlib figure open, and tells nothing by colour alone.
"""

import html
import io
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import FancyBboxPatch, PathPatch
from matplotlib.path import Path
from matplotlib.textpath import TextPath
from PIL import Image

# The palette of Okabe and Ito (2008) without black, which is the ink.
COLOURS = ("#E69F00", "#56B4E9", "#009E73", "#CC79A7", "#0072B2", "#D55E00", "#F0E442")
HATCHES = ("/////", None, ".....", "\\\\\\\\\\", "-----", "xxxxx", "|||||", "+++++")
PALENESS = 0.45  # the share of an owner's colour in the ground under its letter
INK, QUIET, LINE, PAPER, ALARM = "#1a1a1a", "#404040", "#b8b8b8", "#ffffff", "#b00020"

# CSS pixels
SIDE, GAP, STRIP, MARGIN = 39, 5, 10, 16
PITCH, LINE_HEIGHT, KEY_WIDTH, KEY_HEIGHT = SIDE + GAP, 27, 26, 19
MIN_WIDTH = 384
GROUND, FOOT, EDGE, RING, WORDS = range(1, 6)  # what lies on top of what

BLOCK_LIMITS, COLUMN_LIMITS = (1, 2048), (4, 64)
SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
MOST_BANDS = 3  # owners that a block has room to show by letter
MOST_LETTERS = 20  # of a sequence's name in the legend
CSS_DPI, SHARPNESS = 96, 2  # two image pixels for one CSS pixel


class Block(Protocol):
    """What a picture reads of a block; the reference's have it, and so do a learner's."""

    @property
    def block_number(self) -> int:
        """The place in its device's pool, from 0."""

    @property
    def ref_count(self) -> int:
        """The number of tables that are said to hold it."""


class Picture:
    """Owns one drawing and its description in words; both say the same.

    Invariant: neither changes after the picture is made. JupyterLab shows the image with the words folded
    below, because JupyterLab 4.6 gives an image no alt text; the metadata carries it for tools that do.
    """

    def __init__(self, text: str, sheet: "Sheet") -> None:
        self._text = text
        self._sheet = sheet

    def describe(self) -> str:
        """The content of the picture, one fact a line; the same on every run."""
        return self._text

    def __repr__(self) -> str:
        return self._text

    def png(self) -> bytes:
        """The picture as PNG, with transparent corners; the same bytes on every call."""
        with matplotlib.rc_context(_settings()):
            canvas: Any = FigureCanvasAgg(self._sheet.figure())
            canvas.draw()
        image = Image.fromarray(np.asarray(canvas.buffer_rgba()))
        # Flat shapes need no more colours than this, and the notebook's file is a third of the size.
        image = image.quantize(256, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
        file = io.BytesIO()
        image.save(file, "png")
        return file.getvalue()

    def _repr_mimebundle_(self, **_: object) -> tuple[dict[str, Any], dict[str, Any]]:
        about = {"alt": self._text, "width": self._sheet.width, "height": self._sheet.height}
        return {"image/png": self.png(), "text/plain": self._text}, {"image/png": about}

    def _ipython_display_(self) -> None:
        import IPython.display

        show: Any = IPython.display.display
        data, metadata = self._repr_mimebundle_()
        words = f"<pre>{html.escape(self._text)}</pre>"
        show(data, metadata=metadata, raw=True)
        show({"text/html": f"<details><summary>This picture in words</summary>{words}</details>"}, raw=True)


class Sheet:
    """Owns the shapes of a drawing, in CSS pixels with y downwards, in layers of one style each.

    Invariant: a layer is drawn in one call, so that hundreds of blocks cost a handful of calls; what lies on
    top is decided by the style's zorder alone.
    """

    def __init__(self, width: int) -> None:
        self.width = width
        self.height = 0
        self._layers: dict[tuple[tuple[str, Any], ...], list[Path]] = {}

    def add(self, shape: Path, **style: Any) -> None:
        """Put a shape on the layer of this style, named as matplotlib's patches name it."""
        self._layers.setdefault(tuple(style.items()), []).append(shape)

    def box(self, x: float, y: float, width: float, height: float, **style: Any) -> None:
        """Add a rectangle; `style` as in `add`."""
        corners = [(x, y), (x + width, y), (x + width, y + height), (x, y + height), (x, y)]
        self.add(Path(corners, closed=True), **{"linewidth": 0, "zorder": GROUND, **style})

    def words(
        self,
        x: float,
        y: float,
        text: str,
        size: float,
        *,
        bold: bool = False,
        align: float = 0,
        room: float = float("inf"),
        colour: str = INK,
    ) -> None:
        """Write one line, its middle at height y and `align` of its width left of x, shrunk to fit `room`."""
        shape = _letter_shapes(text, size, bold)
        width = _width(text, size, bold)
        scale = min(1, room / width) if width else 1
        start = (x - align * width * scale, y + 0.36 * size * scale)
        placed = np.asarray(shape.vertices) * (scale, -scale) + start
        self.add(Path(placed, shape.codes), facecolor=colour, linewidth=0, zorder=WORDS)

    def figure(self) -> Figure:
        """A new matplotlib figure of the sheet on its own paper; pyplot does not know of it.

        No single ink reads well on both JupyterLab's white and its near-black, hence the paper.
        """
        figure = Figure((self.width / CSS_DPI, self.height / CSS_DPI), dpi=CSS_DPI * SHARPNESS)
        figure.patch.set_alpha(0)
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set(xlim=(0, self.width), ylim=(self.height, 0))
        axes.axis("off")
        card = FancyBboxPatch((1, 1), self.width - 2, self.height - 2, "round,pad=0,rounding_size=8")
        card.set(facecolor=PAPER, edgecolor=LINE, linewidth=0.7, zorder=0)
        axes.add_artist(card)
        for style, shapes in self._layers.items():
            axes.add_artist(PathPatch(Path.make_compound_path(*shapes), **dict(style)))
        return figure


def _settings() -> dict[Any, Any]:
    """Matplotlib's own defaults, whatever the reader has set; a backend would bring pyplot in."""
    defaults: dict[Any, Any] = dict(matplotlib.rcParamsDefault, **{"hatch.linewidth": 1.1})
    return {name: value for name, value in defaults.items() if name != "backend"}


@lru_cache(maxsize=4096)
def _letter_shapes(text: str, size: float, bold: bool) -> Path:
    font = FontProperties(family="DejaVu Sans", weight="bold" if bold else "normal")
    return TextPath((0, 0), text.replace("$", r"\$"), size=size, prop=font)


def _width(text: str, size: float, bold: bool = False) -> float:
    return float(np.asarray(_letter_shapes(text, size, bold).vertices)[:, 0].max(initial=0))


def pool(
    num_blocks: int,
    tables: Mapping[Any, Sequence[Block]],
    *,
    device: object = "GPU",
    columns: int = 16,
    title: str | None = None,
) -> Picture:
    """Draw one device's blocks: who holds each, which are shared, and where a count is wrong.

    `num_blocks` is the size of the pool in blocks. `tables` maps a sequence's name to its block table, a list
    of anything with `block_number` and `ref_count`, all on this `device`; a block in no table is drawn free.
    A block is ringed where its `ref_count` is not the number of tables that hold it, or where two different
    objects carry its number. `columns` is the number of blocks in a row; `title` stands above the headline.

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
    limits = (("num_blocks", num_blocks, BLOCK_LIMITS), ("columns", columns, COLUMN_LIMITS))
    for name, value, (least, most) in limits:
        if not least <= value <= most:
            raise ValueError(f"{name} is {value}; a picture can show {least} to {most}")
    title = " ".join(title.split()) if title else ""
    snapshot = _snapshot(num_blocks, tables, str(getattr(device, "name", device)))
    text = "\n".join([title] * bool(title) + _describe(snapshot))
    return Picture(text, _draw(snapshot, min(columns, num_blocks), title))


@dataclass(frozen=True, slots=True)
class _Owner:
    name: str
    letter: str
    block_numbers: tuple[int, ...]  # in table order; a number may come twice

    @property
    def label(self) -> str:
        return self.name if self.name == self.letter else f"{self.letter} ({self.name})"

    @property
    def size(self) -> str:
        return _blocks(len(set(self.block_numbers)))

    @property
    def style(self) -> int:
        """Which colour and hatch: by letter, so that an owner keeps them from one picture to the next."""
        return ord(self.letter[-1].upper()) - ord("A")

    def place(self, number: int) -> str:
        """The owner's letter and, below it, which of its blocks this is."""
        return self.letter + str(self.block_numbers.index(number)).translate(SUBSCRIPTS)


@dataclass(frozen=True, slots=True)
class _Cell:
    number: int
    owners: tuple[int, ...]  # indices of the tables that hold this block
    ref_counts: tuple[int, ...]  # of each block object that carries this number; there should be one

    @property
    def agrees(self) -> bool:
        return not self.owners or self.ref_counts == (len(self.owners),)

    @property
    def shared(self) -> bool:
        return self.agrees and len(self.owners) > 1


@dataclass(frozen=True, slots=True)
class _Pool:
    """One device's blocks as plain numbers."""

    device: str
    owners: tuple[_Owner, ...]
    cells: tuple[_Cell, ...]

    @property
    def free(self) -> list[int]:
        return [cell.number for cell in self.cells if not cell.owners]

    @property
    def headline(self) -> str:
        return f"{self.device} pool: {_blocks(len(self.cells))}, {len(self.free)} free"

    def names(self, cell: _Cell) -> str:
        *first, last = [self.owners[index].letter for index in cell.owners]
        return f"{', '.join(first)} and {last}" if first else last


def _snapshot(num_blocks: int, tables: Mapping[Any, Sequence[Block]], device: str) -> _Pool:
    names = [" ".join(str(name).split()) for name in tables]
    owners: list[_Owner] = []
    holders: list[list[int]] = [[] for _ in range(num_blocks)]
    objects: list[dict[int, int]] = [{} for _ in range(num_blocks)]  # id of a block object -> its ref_count
    for index, (name, letter, table) in enumerate(zip(names, _letters(names), tables.values(), strict=True)):
        for block in table:
            number = block.block_number
            if number not in range(num_blocks):
                raise ValueError(
                    f"block number {number} in table {name!r}: this {device} pool has the numbers 0 to "
                    f"{num_blocks - 1}; pass the pool's size as num_blocks, and tables of this device only"
                )
            if index not in holders[number]:
                holders[number].append(index)
            objects[number][id(block)] = block.ref_count
        owners.append(_Owner(name, letter, tuple(block.block_number for block in table)))
    cells = [_Cell(n, tuple(holders[n]), tuple(objects[n].values())) for n in range(num_blocks)]
    return _Pool(device, tuple(owners), tuple(cells))


def _letters(names: Sequence[str]) -> list[str]:
    """A short mark for each table: its name where every name is one letter, else A, B, … Z, AA, AB, …"""
    if all(len(name) == 1 and name.isalpha() for name in names):
        return list(names)
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    return [(alphabet[i // 26 - 1] if i >= 26 else "") + alphabet[i % 26] for i in range(len(names))]


def _describe(pool: _Pool) -> list[str]:
    lines = [pool.headline]
    for owner in pool.owners:
        lines.append(f"{owner.label} holds {owner.size}: {', '.join(map(str, owner.block_numbers)) or 'none'}")
    shared = [cell for cell in pool.cells if cell.shared]
    if shared:
        parts = (f"block {c.number} by {pool.names(c)} (ref_count {len(c.owners)})" for c in shared)
        lines.append(f"Shared: {'; '.join(parts)}")
    lines += [_mismatch_in_words(pool, cell) for cell in pool.cells if not cell.agrees]
    for owner in pool.owners:
        times = sorted(Counter(owner.block_numbers).items())
        lines += [f"Repeated: {owner.label} lists block {n} {count} times" for n, count in times if count > 1]
    return [*lines, f"Free: {_ranges(pool.free)}"]


def _mismatch_in_words(pool: _Pool, cell: _Cell) -> str:
    counts = " and ".join(map(str, cell.ref_counts))
    objects = f" on {len(cell.ref_counts)} different objects" if len(cell.ref_counts) > 1 else ""
    tables = "1 table holds" if len(cell.owners) == 1 else f"{len(cell.owners)} tables hold"
    where = f"{tables} it ({pool.names(cell)})"
    return f"Mismatch: block {cell.number} has ref_count {counts}{objects}, and {where}"


def _blocks(count: int) -> str:
    return "1 block" if count == 1 else f"{count} blocks"


def _ranges(numbers: Sequence[int]) -> str:
    """Ascending numbers as text.

    >>> _ranges([0, 1, 2, 5])
    '0 to 2, 5'
    """
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return ", ".join(str(a) if a == b else f"{a} to {b}" for a, b in runs) or "none"


def _draw(pool: _Pool, columns: int, title: str) -> Sheet:
    sheet = Sheet(max(MIN_WIDTH, 2 * MARGIN + columns * PITCH - GAP))
    top = _draw_titles(sheet, title, pool.headline)
    for cell in pool.cells:
        row, column = divmod(cell.number, columns)
        _draw_cell(sheet, pool, cell, MARGIN + column * PITCH, top + row * PITCH)
    bottom = _draw_legend(sheet, pool, top + -(-len(pool.cells) // columns) * PITCH + 11)
    sheet.height = bottom + MARGIN
    return sheet


def _draw_titles(sheet: Sheet, title: str, headline: str) -> int:
    letters = int((sheet.width - 2 * MARGIN) / _width("n", 14, bold=True))
    y = MARGIN + 7
    for line in textwrap.wrap(title, letters) or [headline]:
        sheet.words(MARGIN, y, line, 14, bold=True, room=sheet.width - 2 * MARGIN)
        y += 20
    if title:
        sheet.words(MARGIN, y - 1, headline, 11, colour=QUIET)
        y += 18
    return y - 1


def _draw_cell(sheet: Sheet, pool: _Pool, cell: _Cell, x: float, y: float) -> None:
    shown = cell.owners if len(cell.owners) <= MOST_BANDS else cell.owners[: MOST_BANDS - 1]
    letters = [pool.owners[index].place(cell.number) for index in shown] + ["…"] * (len(shown) < len(cell.owners))
    width = SIDE / max(1, len(letters))
    for place, index in enumerate(shown):
        _fill(sheet, pool.owners[index], x + place * width, y, width, SIDE, STRIP)
    for place, letter in enumerate(letters):
        middle = x + (place + 0.5) * width
        sheet.words(middle, y + 20.5, letter, 12, bold=True, align=0.5, room=width - 2)
    sheet.words(x + 3, y + 7.5, str(cell.number), 9, room=SIDE / 2 - 2, colour=QUIET)
    if cell.shared:
        sheet.words(x + SIDE - 2, y + 7.5, f"×{len(cell.owners)}", 9, bold=True, align=1, room=SIDE / 2 - 3)
    _outline(sheet, x, y, SIDE, SIDE, INK if cell.owners else LINE)
    if not cell.agrees:
        _alarm(sheet, x, y, SIDE, SIDE, 12, "/".join(map(str, cell.ref_counts)) + f"≠{len(cell.owners)}")


def _fill(sheet: Sheet, owner: _Owner, x: float, y: float, width: float, height: float, strip: float) -> None:
    """A pale ground, on which letters read well, over a strip of the owner's full colour and hatch."""
    colour, hatch = COLOURS[owner.style % len(COLOURS)], HATCHES[owner.style % len(HATCHES)]
    red, green, blue = (1 - PALENESS * (1 - part) for part in to_rgb(colour))
    pale = to_hex((red, green, blue))
    sheet.box(x, y, width, height - strip, facecolor=pale)
    sheet.box(x, y + height - strip, width, strip, facecolor=colour, edgecolor=INK, hatch=hatch)


def _outline(sheet: Sheet, x: float, y: float, width: float, height: float, colour: str) -> None:
    sheet.box(x, y, width, height, fill=False, edgecolor=colour, linewidth=0.8, zorder=EDGE)


def _alarm(sheet: Sheet, x: float, y: float, width: float, height: float, foot: float, counts: str) -> None:
    """A ring, and at the foot the number that ref_count says against the number of tables."""
    sheet.box(x, y + height - foot, width, foot, facecolor=PAPER, zorder=FOOT)
    sheet.words(x + width / 2, y + height - foot / 2, counts, 9, bold=True, align=0.5, room=width - 4)
    sheet.box(x - 1, y - 1, width + 2, height + 2, fill=False, edgecolor=ALARM, linewidth=2.2, zorder=RING)


def _draw_legend(sheet: Sheet, pool: _Pool, y: float) -> int:
    """Keys from left to right, as many in a line as fit; returns where the last line ends."""
    x: float = MARGIN
    for key, text in _legend(pool):
        end = x + KEY_WIDTH + 7 + _width(text, 11)
        if x > MARGIN and end > sheet.width - MARGIN:
            end, x, y = end - x + MARGIN, MARGIN, y + LINE_HEIGHT
        _draw_key(sheet, pool, key, x, y)
        sheet.words(x + KEY_WIDTH + 7, y + KEY_HEIGHT / 2, text, 11)
        x = end + 22
    return int(y) + KEY_HEIGHT


def _legend(pool: _Pool) -> list[tuple[int | str, str]]:
    entries: list[tuple[int | str, str]] = []
    for index, owner in enumerate(pool.owners):
        name = owner.name if len(owner.name) <= MOST_LETTERS else owner.name[: MOST_LETTERS - 1] + "…"
        first = f", {owner.letter}₀ first" if len(owner.block_numbers) > 1 else ""
        entries.append((index, f"{name}: {owner.size}{first}"))
    if pool.free:
        entries.append(("free", f"free: {_blocks(len(pool.free))}"))
    if any(cell.shared for cell in pool.cells):
        entries.append(("shared", "shared by n tables"))
    if not all(cell.agrees for cell in pool.cells):
        entries.append(("alarm", "ref_count ≠ tables that hold it"))
    return entries


def _draw_key(sheet: Sheet, pool: _Pool, key: int | str, x: float, y: float) -> None:
    middle = x + KEY_WIDTH / 2
    if isinstance(key, int):
        _fill(sheet, pool.owners[key], x, y, KEY_WIDTH, KEY_HEIGHT, strip=6)
        sheet.words(middle, y + 7, pool.owners[key].letter, 9, bold=True, align=0.5, room=KEY_WIDTH - 4)
    elif key == "shared":
        sheet.words(middle, y + KEY_HEIGHT / 2, "×n", 9, bold=True, align=0.5)
    _outline(sheet, x, y, KEY_WIDTH, KEY_HEIGHT, LINE if key == "free" else INK)
    if key == "alarm":
        _alarm(sheet, x, y, KEY_WIDTH, KEY_HEIGHT, KEY_HEIGHT, "1≠2")

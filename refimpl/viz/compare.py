"""Yours beside the target: what differs is ringed, marked with ≠, and said in words.

Rows of numbers are set above each other, position by position; pools are set side by side, block by block
(`compare_pools`). Nothing is judged: what is the same number is the same, whoever made it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from refimpl.viz.compare_pools import compare_pools, ring_key
from refimpl.viz.owners import pale
from refimpl.viz.sheet import COLOURS, INK, LINE, MARGIN, PAPER, QUIET, Picture, Sheet, text_width
from refimpl.viz.words import check_limits, count_of, one_line

NUMBER_LIMITS, ROW_LIMITS = (0, 256), (0, 64)
GUTTER, CELL, MOST_CELL, SPACE, LINE_WIDTH, HEIGHT, BETWEEN = 62, 44, 96, 4, 768, 27, 15  # CSS pixels
NONE = "–"


@dataclass(frozen=True, slots=True)
class Row:
    """Two lists of numbers, as text, under one name; None where a list is missing altogether."""

    name: str
    yours: tuple[str, ...] | None
    target: tuple[str, ...] | None
    different: tuple[int, ...]  # positions

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Position by position; a dash where one list has ended."""
        return list(zip_longest(self.yours or (), self.target or (), fillvalue=NONE))

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return not self.different and (self.yours is None) == (self.target is None)


def compare(
    yours: Any,
    target: Any,
    *,
    num_blocks: int | None = None,
    device: object = "GPU",
    names: Mapping[Any, str] | None = None,
    tolerance: float = 0.0,
    title: str | None = None,
) -> Picture:
    """Draw two of a kind together, what differs ringed.

    `yours` and `target` are both
    - sequences of numbers, blocks (their block numbers), or texts: compared position by position;
    - dicts name -> such a sequence, block tables for example: compared name by name;
    - the same with `num_blocks`, dicts name -> blocks: drawn and compared as pools of this size on `device`;
    - block managers, recorded steps or MemoryReaders: all pools, where `names` is as in `memory`.
    Two numbers that are no more than `tolerance` apart count as the same.

    Returns a `Picture`; its `describe()` says the same in words. TypeError for two things of different kinds;
    ValueError for more than a page can show: 256 numbers in a row, 64 rows, 256 blocks a pool.

    >>> compare([7, 5, 3], [7, 6, 3, 2])
    2 differences
    yours: 7, 5, 3
    target: 7, 6, 3, 2
    At 1: yours 5, target 6
    At 3: yours –, target 2
    """
    kinds = _kind(yours), _kind(target)
    if kinds[0] != kinds[1]:
        raise TypeError(f"yours is {kinds[0]}, the target {kinds[1]}; compare two of a kind")
    heading = one_line(title)
    if kinds[0] == "a block manager" or num_blocks is not None:
        return compare_pools(yours, target, num_blocks, device, names or {}, heading)
    if kinds[0] == "a sequence":
        yours, target = {"": yours}, {"": target}
    rows = _rows(yours, target, tolerance)
    text = "\n".join([heading] * bool(heading) + _describe(rows))
    return Picture(text, _draw(rows, heading))


def _kind(subject: Any) -> str:
    if isinstance(subject, Mapping):
        return "a dict"
    if any(hasattr(subject, name) for name in ("block_tables", "read", "gpu")):
        return "a block manager"
    if hasattr(subject, "__iter__") and not isinstance(subject, str):
        return "a sequence"
    raise TypeError(f"cannot compare {type(subject).__name__}: pass a sequence, a dict of them or a block manager")


def _rows(yours: Mapping[Any, Any], target: Mapping[Any, Any], tolerance: float) -> list[Row]:
    keys = list(dict.fromkeys([*target, *yours]))
    check_limits("the number of rows", len(keys), ROW_LIMITS, "compare fewer")
    rows = []
    for key in keys:
        mine, theirs = _values(yours.get(key)), _values(target.get(key))
        longest = max(len(mine or ()), len(theirs or ()))
        check_limits("the number of values in a row", longest, NUMBER_LIMITS, "compare a part")
        pairs = list(zip_longest(mine or (), theirs or (), fillvalue=NONE))
        different = tuple(i for i, (a, b) in enumerate(pairs) if not _same(a, b, tolerance))
        texts = [_texts(a, b, i in different) for i, (a, b) in enumerate(pairs)]
        ours = None if mine is None else tuple(text for text, _ in texts[: len(mine)])
        other = None if theirs is None else tuple(text for _, text in texts[: len(theirs)])
        rows.append(Row(one_line(key), ours, other, different))
    return rows


def _values(subject: Any) -> list[Any] | None:
    """Block numbers of blocks, plain numbers of tensors; None where there is no list."""
    if subject is None:
        return None
    values = (getattr(value, "block_number", value) for value in subject)
    return [value.item() if hasattr(value, "item") else value for value in values]


def _same(a: Any, b: Any, tolerance: float) -> bool:
    if isinstance(a, int | float) and isinstance(b, int | float):
        return a == b or abs(a - b) <= tolerance
    return bool(a == b)


def _texts(a: Any, b: Any, different: bool) -> tuple[str, str]:
    """Both as text, with as many digits as it takes to tell them apart."""
    for digits in (4, 7, 9, 17):
        texts = _text(a, digits), _text(b, digits)
        if not different or texts[0] != texts[1]:
            break
    return texts


def _text(value: Any, digits: int) -> str:
    return f"{value:.{digits}g}" if isinstance(value, float) else one_line(repr(value) if value is None else value)


def _headline(rows: Sequence[Row]) -> str:
    differences = sum(max(len(row.different), 0 if row.same else 1) for row in rows)
    return count_of(differences, "difference") if differences else "No difference"


def _describe(rows: Sequence[Row]) -> list[str]:
    lines = [_headline(rows)]
    for row in rows:
        name = f"{row.name}: " if row.name else ""
        lines += [f"{name}yours: {_listing(row.yours)}", f"{name}target: {_listing(row.target)}"]
    for row in rows:
        for i in row.different:
            mine, theirs = row.pairs[i]
            lines.append(f"{row.name + ' at' if row.name else 'At'} {i}: yours {mine}, target {theirs}")
    return lines


def _listing(values: tuple[str, ...] | None) -> str:
    return "missing" if values is None else ", ".join(values) or "empty"


def _draw(rows: Sequence[Row], title: str) -> Sheet:
    texts = [text for row in rows for pair in row.pairs for text in pair]
    widest = max(text_width(text, 12, bold=True) for text in [*texts, NONE])
    cell = max(CELL, min(MOST_CELL, widest + 8))
    columns = int(LINE_WIDTH // (cell + SPACE))
    longest = max((len(row.pairs) for row in rows), default=0)
    sheet = Sheet(max(330, int(2 * MARGIN + GUTTER + min(longest, columns) * (cell + SPACE))))
    y = sheet.titles(title, _headline(rows)) + 2.0
    for row in rows:
        if row.name:
            words = row.name if row.same else f"{row.name} differs"
            sheet.words(MARGIN, y + 10, words, 12, bold=True, room=sheet.width - 2 * MARGIN)
            y += 18
        for first in range(0, max(1, len(row.pairs)), columns):
            y = _draw_line(sheet, row, range(first, min(first + columns, len(row.pairs))), y, cell)
    different = any(not row.same for row in rows)
    sheet.height = (sheet.legend([(ring_key, "differs")], y + 8) if different else int(y)) + MARGIN
    return sheet


def _draw_line(sheet: Sheet, row: Row, positions: range, y: float, cell: float) -> float:
    """Some positions of a row, yours above the target; returns where the line ends."""
    left, top, bottom = MARGIN + GUTTER, y + 15, y + 15 + HEIGHT + BETWEEN
    for name, values, height in (("yours", row.yours, top), ("target", row.target, bottom)):
        sheet.words(MARGIN, height + HEIGHT / 2, name, 11, colour=QUIET)
        if not values and positions.start == 0:
            sheet.words(left + cell / 2, height + HEIGHT / 2, _listing(values), 11, align=0.5, room=cell - 5)
    for i in positions:
        x = left + (i - positions.start) * (cell + SPACE)
        sheet.words(x + cell / 2, y + 7, str(i), 9, align=0.5, colour=QUIET)
        for text, values, height in zip(row.pairs[i], (row.yours, row.target), (top, bottom), strict=True):
            if values:
                _draw_value(sheet, text, i < len(values), x, height, cell)
        if i in row.different:
            _draw_ring(sheet, x, top, cell)
    if not row.pairs and not row.same:
        _draw_ring(sheet, left, top, cell)
    return bottom + HEIGHT + 8


def _draw_value(sheet: Sheet, text: str, there: bool, x: float, y: float, cell: float) -> None:
    sheet.box(x, y, cell, HEIGHT, facecolor=pale(COLOURS[1]) if there else PAPER)
    sheet.outline(x, y, cell, HEIGHT, INK if there else LINE)
    sheet.words(x + cell / 2, y + HEIGHT / 2, text, 12, bold=True, align=0.5, room=cell - 5)


def _draw_ring(sheet: Sheet, x: float, y: float, cell: float) -> None:
    """Around one position of both lists."""
    sheet.ring(x - 1, y - 1, cell + 2, 2 * HEIGHT + BETWEEN + 2)
    sheet.words(x + cell / 2, y + HEIGHT + BETWEEN / 2, "≠", 12, bold=True, align=0.5)

"""The picture of a sweep: what several quantities became as one flag was changed.

A row for each value of the flag, a column of bars for each quantity. A column has its own scale, from 0 to its largest
number, and every bar has its number beside it.
"""

import math
from collections.abc import Mapping

from refimpl.viz.sheet import (
    COLOURS,
    GROUND,
    INK,
    KEY_HEIGHT,
    LINE,
    MARGIN,
    MIN_WIDTH,
    QUIET,
    Picture,
    Sheet,
    text_width,
)
from refimpl.viz.words import check_limits, listed, one_line, shortened

VALUE_LIMITS, QUANTITY_LIMITS = (1, 32), (1, 8)
MOST_LETTERS = 24  # of a value
BAR, NUMBER, SPACE = 96, 58, 18  # CSS pixels: the longest bar, its number, and up to the next column
PITCH, HEADER = KEY_HEIGHT + 7, 38


def sweep(flag: str, rows: Mapping[str, Mapping[str, float | None]], *, title: str | None = None) -> Picture:
    """Draw what came out for each value of a flag.

    `rows` maps each value of `flag`, as text, to its quantities: name -> number, 0 or more; None where there is none.
    What stands behind a comma in a name is its unit. `title` stands above.

    Returns a `Picture`; its `describe()` says the same in words. ValueError when rows have different quantities, for a
    number below 0 or not finite, or for more than a page can show: 1 to 32 values, 1 to 8 quantities.

    >>> sweep("block_size", {"8": {"throughput, tokens/s": 240.0}, "16": {"throughput, tokens/s": 251.5}})
    block_size: 8 and 16
    throughput, tokens/s: 240 at 8; 251.5 at 16
    """
    check_limits("values", len(rows), VALUE_LIMITS, "sweep over fewer")
    names = list(next(iter(rows.values())))
    check_limits("quantities", len(names), QUANTITY_LIMITS, "choose some of them")
    for value, row in rows.items():
        if list(row) != names:
            raise ValueError(
                f"{flag}={value} has the quantities {', '.join(row)}; the first row has {', '.join(names)}"
            )
        for name, number in row.items():
            if number is not None and not 0 <= number < math.inf:
                raise ValueError(f"{name} is {number} for {flag}={value}; a bar needs a finite number of 0 or more")
    title, headline = one_line(title), f"{flag}: {listed(list(rows))}"
    text = "\n".join([title] * bool(title) + [headline] + [_in_words(name, rows) for name in names])
    return Picture(text, _draw(flag, rows, names, title, headline))


def _in_words(name: str, rows: Mapping[str, Mapping[str, float | None]]) -> str:
    return f"{name}: " + "; ".join(f"{_number(row[name])} at {value}" for value, row in rows.items())


def _number(number: float | None) -> str:
    """A number as short as its bar deserves; a dash for none.

    >>> [_number(number) for number in (None, 0, 0.012345, 3.14159, 123.4567, 12345.6)]
    ['–', '0', '0.0123', '3.14', '123.5', '12,346']
    """
    if number is None:
        return "–"
    if number >= 1000:
        return f"{number:,.0f}"
    return f"{number:.4g}" if number >= 100 else f"{number:.3g}"


def _draw(
    flag: str, rows: Mapping[str, Mapping[str, float | None]], names: list[str], title: str, headline: str
) -> Sheet:
    labels = [shortened(value, MOST_LETTERS) for value in rows]
    left = MARGIN + max(text_width(text, 11, bold=True) for text in [*labels, flag]) + SPACE
    sheet = Sheet(max(MIN_WIDTH, int(left + len(names) * (BAR + NUMBER + SPACE) - SPACE + MARGIN)))
    top = sheet.titles(title, headline)
    sheet.words(MARGIN, top + HEADER - 14, flag, 11, bold=True)
    for index, label in enumerate(labels):
        sheet.words(MARGIN, top + HEADER + (index + 0.5) * PITCH, label, 11, bold=True)
    for column, name in enumerate(names):
        x = left + column * (BAR + NUMBER + SPACE)
        _draw_column(sheet, name, [row[name] for row in rows.values()], x, top)
    sheet.height = int(top + HEADER + len(rows) * PITCH + MARGIN)
    return sheet


def _draw_column(sheet: Sheet, name: str, numbers: list[float | None], x: float, top: float) -> None:
    """A quantity's name and unit, a line for 0, and a bar with its number for each row."""
    what, _, unit = name.partition(",")
    sheet.words(x, top + 8, what, 11, bold=True, room=BAR + NUMBER)
    if unit.strip():
        sheet.words(x, top + HEADER - 14, unit.strip(), 9, colour=QUIET, room=BAR + NUMBER)
    foot = top + HEADER
    sheet.line([(x, foot), (x, foot + len(numbers) * PITCH)], edgecolor=LINE)
    largest = max((number for number in numbers if number), default=1)
    for index, number in enumerate(numbers):
        y = foot + index * PITCH + (PITCH - KEY_HEIGHT) / 2
        length = BAR * (number or 0) / largest
        if length:
            sheet.box(x, y, length, KEY_HEIGHT, facecolor=COLOURS[1], edgecolor=INK, linewidth=0.6, zorder=GROUND)
        sheet.words(x + length + 5, y + KEY_HEIGHT / 2, _number(number), 11, room=NUMBER - 5)

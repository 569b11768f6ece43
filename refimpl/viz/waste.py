"""What each way of handing out memory wastes: one bar a policy, its parts in figures beside it.

The parts are those of figure 2 of the PagedAttention paper, as shares of the memory handed out or of a whole pool;
together with what is free they make 1.
"""

import math
from collections.abc import Mapping
from typing import Any

from refimpl.viz.sheet import (
    COLOURS,
    INK,
    KEY_HEIGHT,
    KEY_WIDTH,
    LINE,
    MARGIN,
    QUIET,
    Key,
    Picture,
    Sheet,
    text_width,
)
from refimpl.viz.words import check_limits, count_of, one_line, shortened

POLICY_LIMITS = (1, 24)
BAR, BAR_HEIGHT, PITCH, FIGURE, HEADER = 340, 22, 32, 70, 42  # CSS pixels
MOST_LETTERS = 28  # of a policy's name
ROUNDING = 1e-6
PARTS = {  # part -> colour, hatch, what it means
    "used": (COLOURS[2], None, "tokens' keys and values"),
    "reserved": (COLOURS[1], "/////", "empty, used later by its sequence"),
    "internal": (COLOURS[0], "xxxxx", "empty, never used by its sequence"),
    "external": (COLOURS[3], ".....", "free, of no use to anybody"),
    "free": (None, None, "free"),
}


def waste(results: Mapping[str, Any], *, of: str = "memory", title: str | None = None) -> Picture:
    """Draw how much of the memory each policy uses, and what becomes of the rest.

    `results` maps a policy's name to its shares of 1: used, reserved, internal and external, as a dict, as an object
    with these attributes, or as a SimulationResult, of which `of` picks the share of the "memory" handed out or of
    the whole "pool". What is missing to 1 is free.

    Returns a `Picture`; its `describe()` says the same in words. ValueError for a share outside 0 to 1, shares that
    make more than 1, or more policies than a page can show (24).

    >>> waste({"max length": {"used": 0.204, "reserved": 0.133, "internal": 0.573, "external": 0.09}})
    Shares of the memory, 1 way to hand it out
    max length: used 20.4 %, reserved 13.3 %, internal 57.3 %, external 9.0 %; wasted 79.6 %

    Figure 2 of the PagedAttention paper (Kwon et al., 2023).
    """
    if of not in ("memory", "pool"):
        raise ValueError(f"of is {of!r}; it must be 'memory' or 'pool'")
    check_limits("the number of policies", len(results), POLICY_LIMITS, "pass fewer")
    shares = {one_line(name): _shares(one_line(name), result, of) for name, result in results.items()}
    headline = f"Shares of the {'pool' if of == 'pool' else 'memory'}, {count_of(len(shares), 'way')} to hand it out"
    heading = one_line(title)
    text = [heading] * bool(heading) + [headline] + [_in_words(name, parts) for name, parts in shares.items()]
    return Picture("\n".join(text), _draw(shares, heading, headline))


def _shares(name: str, result: Any, of: str) -> dict[str, float]:
    """The parts of one policy, in order; free is there where it is not 0."""
    source = getattr(result, of, result)
    parts = {}
    for part in ("used", "reserved", "internal", "external"):
        value = float(source[part] if isinstance(source, Mapping) else getattr(source, part))
        if not -ROUNDING <= value <= 1 + ROUNDING or math.isnan(value):
            raise ValueError(f"{part} of {name!r} is {value}; a share must be 0 to 1")
        parts[part] = max(value, 0.0)
    rest = 1 - sum(parts.values())
    if rest < -ROUNDING:
        raise ValueError(f"the shares of {name!r} make {1 - rest:.4g} together; they must make 1 at most")
    return parts | ({"free": rest} if rest > ROUNDING else {})


def _wasted(parts: Mapping[str, float]) -> float:
    return sum(parts[part] for part in ("reserved", "internal", "external"))


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _in_words(name: str, parts: Mapping[str, float]) -> str:
    figures = ", ".join(f"{part} {_percent(share)}" for part, share in parts.items())
    return f"{name}: {figures}; wasted {_percent(_wasted(parts))}"


def _draw(shares: Mapping[str, Mapping[str, float]], title: str, headline: str) -> Sheet:
    names = {name: shortened(name, MOST_LETTERS) for name in shares}
    columns = [part for part in PARTS if any(part in parts for parts in shares.values())]
    bar = MARGIN + max(text_width(name, 12, bold=True) for name in names.values()) + 14
    figures = bar + BAR + 10
    sheet = Sheet(int(figures + FIGURE * (len(columns) + 1) + MARGIN))
    y = sheet.titles(title, headline) + 8
    _draw_header(sheet, columns, figures, y)
    y += HEADER
    for name, parts in shares.items():
        sheet.words(MARGIN, y + BAR_HEIGHT / 2, names[name], 12, bold=True)
        _draw_bar(sheet, parts, bar, y)
        for i, part in enumerate(columns):
            figure = _percent(parts.get(part, 0.0))
            sheet.words(figures + (i + 1) * FIGURE - 6, y + BAR_HEIGHT / 2, figure, 12, align=1)
        end = figures + (len(columns) + 1) * FIGURE - 2
        sheet.words(end, y + BAR_HEIGHT / 2, _percent(_wasted(parts)), 12, bold=True, align=1)
        y += PITCH
    _draw_scale(sheet, bar, y - PITCH + BAR_HEIGHT)
    entries = [(_part_key(part), f"{part}: {PARTS[part][2]}" if part != "free" else part) for part in columns]
    sheet.height = sheet.legend(entries, y + 20) + MARGIN
    return sheet


def _draw_header(sheet: Sheet, columns: list[str], figures: float, y: float) -> None:
    """What the figures are: the key of each part, and its name."""
    for i, part in enumerate(columns):
        right = figures + (i + 1) * FIGURE - 6
        _part_key(part)(sheet, right - KEY_WIDTH, y - 6)
        sheet.words(right, y + 25, part, 11, align=1, colour=QUIET)
    end = figures + (len(columns) + 1) * FIGURE - 2
    sheet.words(end, y + 25, "wasted", 11, bold=True, align=1)


def _draw_bar(sheet: Sheet, parts: Mapping[str, float], x: float, y: float) -> None:
    left = x
    for part, share in parts.items():
        _fill(sheet, part, left, y, BAR * share, BAR_HEIGHT)
        left += BAR * share
    sheet.outline(x, y, BAR, BAR_HEIGHT)


def _fill(sheet: Sheet, part: str, x: float, y: float, width: float, height: float) -> None:
    colour, hatch, _ = PARTS[part]
    if colour is not None and width > 0:
        sheet.box(x, y, width, height, facecolor=colour, edgecolor=INK, hatch=hatch)
        sheet.line([(x + width, y), (x + width, y + height)])


def _draw_scale(sheet: Sheet, x: float, y: float) -> None:
    for quarter in range(5):
        at = x + BAR * quarter / 4
        sheet.line([(at, y + 3), (at, y + 7)], edgecolor=QUIET)
        sheet.words(at, y + 14, f"{25 * quarter} %", 9, align=0.5, colour=QUIET)


def _part_key(part: str) -> Key:
    def draw(sheet: Sheet, x: float, y: float) -> None:
        _fill(sheet, part, x, y, KEY_WIDTH, KEY_HEIGHT)
        sheet.outline(x, y, KEY_WIDTH, KEY_HEIGHT, LINE if part == "free" else INK)

    return draw

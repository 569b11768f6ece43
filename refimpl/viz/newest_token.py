"""Which tokens of a sequence are known, which have a slot, and which are written: moment by moment.

A row for each moment, a cell for each position. It shows the step convention: the newest token is counted as soon as
it is known, gets its slot next, and is written by the step that follows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from refimpl.viz.owners import pale
from refimpl.viz.sheet import (
    ALARM,
    COLOURS,
    HATCHES,
    INK,
    KEY_HEIGHT,
    KEY_WIDTH,
    LINE,
    MARGIN,
    MIN_WIDTH,
    QUIET,
    Key,
    Picture,
    Sheet,
    text_width,
)
from refimpl.viz.words import check_limits, count_of, listed, one_line, ranges

MOMENT_LIMITS, POSITION_LIMITS, SIZE_LIMITS = (1, 12), (0, 48), (1, 32)
CELL, CELL_HEIGHT, PITCH, GAP, SPACE = 27, 27, 54, 5, 16  # CSS pixels
WRITTEN, STRIP = COLOURS[1], 7


@dataclass(frozen=True, slots=True)
class Moment:
    """One sequence as it stands after something has happened: `what`, and its table, `block_numbers`."""

    what: str
    num_tokens: int  # known
    num_written: int  # those whose keys and values are in the cache
    block_numbers: tuple[int, ...]
    block_size: int

    @property
    def room(self) -> int:
        """Slots that the block table has."""
        return len(self.block_numbers) * self.block_size

    @property
    def width(self) -> int:
        """Positions to be drawn."""
        return max(self.room, self.num_tokens)


def newest_token(
    moments: Mapping[str, tuple[int, int, Sequence[Any]]], block_size: int, *, title: str | None = None
) -> Picture:
    """Draw, moment by moment, which tokens of one sequence are known, have a slot, and are written.

    `moments` maps what has just happened to (tokens known, tokens whose keys and values are written, block table); a
    table lists blocks or block numbers, logical block 0 first. `block_size` is the tokens a block.

    Returns a `Picture`; its `describe()` says the same in words. ValueError when more tokens are written than are
    known or have a slot, or for more than a page can show (12 moments, 48 positions, blocks of 32).

    >>> newest_token({"sampled": (5, 4, [7]), "append_slots": (5, 4, [7, 6])}, block_size=4)
    One sequence in blocks of 4 at 2 moments
    sampled: 5 tokens known, 4 written; block 7
    sampled: no slot for position 4
    append_slots: 5 tokens known, 4 written; blocks 7 and 6
    append_slots: a slot for position 4, not written yet

    What a step counts, and what it writes: section 4.3 and figure 6 of the PagedAttention paper (Kwon et al., 2023).
    """
    check_limits("the number of moments", len(moments), MOMENT_LIMITS, "show fewer")
    check_limits("block_size", block_size, SIZE_LIMITS)
    shown = [_moment(one_line(what), *moment, block_size) for what, moment in moments.items()]
    heading = one_line(title)
    headline = f"One sequence in blocks of {block_size} at {count_of(len(shown), 'moment')}"
    text = "\n".join([heading] * bool(heading) + [headline, *(line for moment in shown for line in _describe(moment))])
    return Picture(text, _draw(shown, heading, headline))


def _moment(what: str, num_tokens: int, num_written: int, block_table: Sequence[Any], block_size: int) -> Moment:
    numbers = tuple(int(getattr(block, "block_number", block)) for block in block_table)
    moment = Moment(what, int(num_tokens), int(num_written), numbers, block_size)
    check_limits("the number of positions", moment.width, POSITION_LIMITS, "show a shorter sequence")
    if not 0 <= moment.num_written <= min(moment.num_tokens, moment.room):
        slots = count_of(moment.room, "slot")
        raise ValueError(f"{moment.num_written} tokens written of {moment.num_tokens} that are known, in {slots}")
    return moment


def _describe(moment: Moment) -> list[str]:
    numbers = [str(number) for number in moment.block_numbers]
    blocks = f"block{'s' * (len(numbers) > 1)} {listed(numbers)}" if numbers else "no blocks"
    tokens = count_of(moment.num_tokens, "token")
    lines = [f"{moment.what}: {tokens} known, {moment.num_written} written; {blocks}"]
    waiting = _positions(range(moment.num_written, min(moment.num_tokens, moment.room)))
    slotless = _positions(range(max(moment.num_written, moment.room), moment.num_tokens))
    lines += [f"{moment.what}: a slot for {waiting}, not written yet"] * bool(waiting)
    lines += [f"{moment.what}: no slot for {slotless}"] * bool(slotless)
    return lines


def _positions(positions: range) -> str:
    if not positions:
        return ""
    return f"position{'s' * (len(positions) > 1)} {ranges(positions)}"


def _draw(moments: Sequence[Moment], title: str, headline: str) -> Sheet:
    left = MARGIN + max(text_width(moment.what, 11, bold=True) for moment in moments) + SPACE
    positions = max(moment.width for moment in moments)
    gaps = GAP * (max(0, positions - 1) // moments[0].block_size)
    sheet = Sheet(max(MIN_WIDTH, int(left + positions * CELL + gaps + MARGIN)))
    y = sheet.titles(title, headline) + 4.0
    for moment in moments:
        sheet.words(MARGIN, y + 18 + CELL_HEIGHT / 2, moment.what, 11, bold=True)
        for index, number in enumerate(moment.block_numbers):
            width = moment.block_size * CELL
            x = left + index * (width + GAP)
            sheet.words(x, y + 9, f"block {number}", 9, colour=QUIET, room=width)
        for position in range(moment.width):
            x = left + position * CELL + GAP * (position // moment.block_size)
            _draw_position(sheet, moment, position, x, y + 18)
        y += PITCH
    sheet.height = sheet.legend(_legend(moments), y + 6) + MARGIN
    return sheet


def _draw_position(sheet: Sheet, moment: Moment, position: int, x: float, y: float) -> None:
    if position < moment.num_written:
        _draw_written(sheet, x, y, CELL, CELL_HEIGHT)
    elif position < min(moment.num_tokens, moment.room):
        _draw_known(sheet, x, y, CELL, CELL_HEIGHT)
    elif position < moment.num_tokens:
        _draw_slotless(sheet, x, y, CELL, CELL_HEIGHT)
    else:
        sheet.outline(x, y, CELL, CELL_HEIGHT, LINE)
        return
    sheet.words(x + CELL / 2, y + (CELL_HEIGHT - STRIP) / 2, str(position), 11, bold=True, align=0.5, room=CELL - 4)


def _draw_written(sheet: Sheet, x: float, y: float, width: float, height: float) -> None:
    """A slot with keys and values in it."""
    sheet.box(x, y, width, height - STRIP, facecolor=pale(WRITTEN))
    sheet.box(x, y + height - STRIP, width, STRIP, facecolor=WRITTEN, edgecolor=INK, hatch=HATCHES[0])
    sheet.outline(x, y, width, height)


def _draw_known(sheet: Sheet, x: float, y: float, width: float, height: float) -> None:
    """A slot whose token is known, and nothing in it yet."""
    sheet.outline(x, y, width, height)
    sheet.line([(x, y + height - STRIP), (x + width, y + height - STRIP)], linestyle=(0, (2, 2)))


def _draw_slotless(sheet: Sheet, x: float, y: float, width: float, height: float) -> None:
    """A token that is known and has no slot."""
    sheet.outline(x + 1, y + 1, width - 2, height - 2, ALARM, linewidth=1.6, linestyle=(0, (3, 2)))


def _legend(moments: Sequence[Moment]) -> list[tuple[Key, str]]:
    entries: list[tuple[Key, str]] = [(_draw_key(_draw_written), "keys and values written")]
    if any(moment.num_written < min(moment.num_tokens, moment.room) for moment in moments):
        entries.append((_draw_key(_draw_known), "known, has a slot, not written yet"))
    if any(moment.num_tokens > moment.room for moment in moments):
        entries.append((_draw_key(_draw_slotless), "known, no slot"))
    return entries


def _draw_key(draw_slot: Any) -> Key:
    def draw(sheet: Sheet, x: float, y: float) -> None:
        draw_slot(sheet, x, y, KEY_WIDTH, KEY_HEIGHT)

    return draw

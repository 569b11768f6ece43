"""What one query reads of the KV cache: through a block table, slot after slot, in the order of the tokens.

A row for each block of the table, in memory order, so that it can be seen how the tokens lie scattered; the numbers in
the cells are the positions of the tokens, so they are the order of reading. A slot is a row of the KV cache tensor.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from refimpl.viz.owners import pale
from refimpl.viz.sheet import COLOURS, KEY_HEIGHT, KEY_WIDTH, LINE, MARGIN, QUIET, Key, Picture, Sheet, text_width
from refimpl.viz.words import check_limits, count_of, one_line

BLOCK_LIMITS, SIZE_LIMITS = (1, 32), (1, 32)
GUTTER, CELLS, MOST_CELL, CELL_HEIGHT, PITCH, GAP = 112, 768, 34, 27, 34, 15  # CSS pixels


@dataclass(frozen=True, slots=True)
class Row:
    """One entry of the block table, and what is read of it."""

    turn: int  # which logical block it is, so when it is read
    number: int  # of the physical block
    first_slot: int
    num_read: int  # tokens
    block_size: int

    @property
    def first_position(self) -> int:
        """The first token of the block, counted from the start of the sequence."""
        return self.turn * self.block_size


def attention_gather(
    block_table: Sequence[Any], context_len: int, block_size: int, *, title: str | None = None
) -> Picture:
    """Draw which slots one query reads, in which order, and which of its blocks' slots hold nothing yet.

    `block_table` lists a sequence's blocks or block numbers, logical block 0 first; `context_len` is the number of
    tokens that the query attends to, `block_size` the tokens a block. Slot s is row s % block_size of block
    s // block_size.

    Returns a `Picture`; its `describe()` says the same in words. ValueError when the table has too few blocks for the
    context, or for more than a page can show (32 blocks of 32 tokens).

    >>> attention_gather([7, 2], context_len=6, block_size=4)
    A query over 6 tokens reads 6 slots in 2 blocks of 4
    1st read: block 7, slots 28 to 31, for positions 0 to 3
    2nd read: block 2, slots 8 to 9, for positions 4 to 5
    Unused: slots 10 to 11 of block 2

    The kernel's view of the cache: section 4.1 and figure 5 of the PagedAttention paper (Kwon et al., 2023).
    """
    check_limits("the number of blocks", len(block_table), BLOCK_LIMITS, "pass a shorter table and context")
    check_limits("block_size", block_size, SIZE_LIMITS)
    room = len(block_table) * block_size
    if not 1 <= context_len <= room:
        blocks = count_of(len(block_table), "block")
        raise ValueError(f"context_len is {context_len}; the table's {blocks} of {block_size} hold 1 to {room} tokens")
    rows = [_row(turn, block, context_len, block_size) for turn, block in enumerate(block_table)]
    heading = one_line(title)
    text = "\n".join([heading] * bool(heading) + _describe(rows, context_len))
    return Picture(text, _draw(rows, context_len, heading))


def _row(turn: int, block: Any, context_len: int, block_size: int) -> Row:
    number = int(getattr(block, "block_number", block))
    if number < 0:
        raise ValueError(f"block number {number} in the table: a block number is 0 or more")
    num_read = min(block_size, max(0, context_len - turn * block_size))
    return Row(turn, number, number * block_size, num_read, block_size)


def _headline(rows: Sequence[Row], context_len: int) -> str:
    blocks = count_of(sum(row.num_read > 0 for row in rows), "block")
    tokens, slots = count_of(context_len, "token"), count_of(context_len, "slot")
    return f"A query over {tokens} reads {slots} in {blocks} of {rows[0].block_size}"


def _describe(rows: Sequence[Row], context_len: int) -> list[str]:
    lines = [_headline(rows, context_len)]
    for row in rows:
        if row.num_read:
            slots = _span("slot", row.first_slot, row.num_read)
            lines.append(f"{_ordinal(row.turn)} read: block {row.number}, {slots}, for {_positions(row)}")
    for row in rows:
        unused = row.block_size - row.num_read
        if unused:
            lines.append(f"Unused: {_span('slot', row.first_slot + row.num_read, unused)} of block {row.number}")
    numbers = [row.number for row in rows]
    twice = [number for number in dict.fromkeys(numbers) if numbers.count(number) > 1]
    return lines + [f"Repeated: the table lists block {n} {numbers.count(n)} times" for n in twice]


def _span(thing: str, first: int, count: int) -> str:
    return f"{thing} {first}" if count == 1 else f"{thing}s {first} to {first + count - 1}"


def _positions(row: Row) -> str:
    return _span("position", row.first_position, row.num_read)


def _ordinal(turn: int) -> str:
    """1st, 2nd, 3rd, … of a count from 0.

    >>> [_ordinal(turn) for turn in (0, 1, 2, 3, 10, 20)]
    ['1st', '2nd', '3rd', '4th', '11th', '21st']
    """
    number = turn + 1
    ending = "th" if 10 < number % 100 < 14 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _draw(rows: Sequence[Row], context_len: int, title: str) -> Sheet:
    block_size = rows[0].block_size
    cell = min(MOST_CELL, CELLS / block_size)
    left = MARGIN + GUTTER
    words = max(text_width(_in_order(row), 11) for row in rows)
    sheet = Sheet(max(420, int(left + cell * block_size + 14 + words + MARGIN)))
    y = sheet.titles(title, _headline(rows, context_len)) + 6.0
    in_memory = sorted(rows, key=lambda row: (row.number, row.turn))
    sheet.words(left, y, "slots of the KV cache, in memory order", 9, colour=QUIET)
    y += 12
    for row, before in zip(in_memory, [None, *in_memory], strict=False):
        if before is not None and row.number > before.number + 1:
            between = count_of(row.number - before.number - 1, "block")
            sheet.words(MARGIN, y + GAP / 2 - 3, f"⋮ {between} between", 9, colour=QUIET)
            y += GAP
        _draw_row(sheet, row, left, y, cell)
        y += PITCH
    sheet.height = sheet.legend(_legend(rows), y + 8) + MARGIN
    return sheet


def _in_order(row: Row) -> str:
    return f"read {_ordinal(row.turn)}: {_positions(row)}" if row.num_read else "not read: no token yet"


def _draw_row(sheet: Sheet, row: Row, left: float, y: float, cell: float) -> None:
    """A block: its slots with the positions of their tokens, and when it is read."""
    sheet.words(MARGIN, y + 9, f"block {row.number}", 11, bold=True, room=GUTTER - 8)
    slots = _span("slot", row.first_slot, row.block_size)
    sheet.words(MARGIN, y + 22, slots, 9, colour=QUIET, room=GUTTER - 8)
    for offset in range(row.block_size):
        x = left + offset * cell
        if offset < row.num_read:
            _draw_read(sheet, x, y, cell, CELL_HEIGHT)
            position = str(row.first_position + offset)
            sheet.words(x + cell / 2, y + CELL_HEIGHT / 2, position, 11, bold=True, align=0.5, room=cell - 4)
        else:
            _draw_unused(sheet, x, y, cell, CELL_HEIGHT)
    end = left + row.block_size * cell
    sheet.words(end + 14, y + CELL_HEIGHT / 2, _in_order(row), 11)


def _draw_read(sheet: Sheet, x: float, y: float, width: float, height: float) -> None:
    sheet.box(x, y, width, height, facecolor=pale(COLOURS[1]))
    sheet.outline(x, y, width, height)


def _draw_unused(sheet: Sheet, x: float, y: float, width: float, height: float) -> None:
    sheet.outline(x, y, width, height, LINE)
    sheet.line([(x + 5, y + height - 6), (x + width - 5, y + 6)], edgecolor=QUIET, linewidth=0.8)


def _legend(rows: Sequence[Row]) -> list[tuple[Key, str]]:
    entries: list[tuple[Key, str]] = [(_read_key, "slot that is read: position of its token, so order of reading")]
    if any(row.num_read < row.block_size for row in rows):
        entries.append((_unused_key, "slot that holds nothing yet: not read"))
    return entries


def _read_key(sheet: Sheet, x: float, y: float) -> None:
    _draw_read(sheet, x, y, KEY_WIDTH, KEY_HEIGHT)
    sheet.words(x + KEY_WIDTH / 2, y + KEY_HEIGHT / 2, "5", 11, bold=True, align=0.5)


def _unused_key(sheet: Sheet, x: float, y: float) -> None:
    _draw_unused(sheet, x, y, KEY_WIDTH, KEY_HEIGHT)

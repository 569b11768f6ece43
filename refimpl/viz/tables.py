"""Block tables as a map: sequence, logical blocks, and the physical block behind each.

Up to 16 blocks are drawn with an arrow from every logical block to its physical one; beyond that arrows cannot be
followed, and each logical block names its physical one instead. Both forms show, and say, the same.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from refimpl.viz.owners import Owner, fill, letters, owner_key, pale
from refimpl.viz.pool import shared_key
from refimpl.viz.sheet import (
    ALARM,
    EDGE,
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
from refimpl.viz.words import check_limits, count_of, listed, one_line

SEQUENCE_LIMITS, BLOCK_LIMITS = (1, 64), (0, 512)
MOST_ARROWS = 16  # logical blocks, and physical ones
WIDTH, PITCH, GROUP_GAP, GUTTER = 46, 52, 14, 62  # CSS pixels
ARROWS_HEIGHT, ARCS_HEIGHT = 64, 46
DASHES = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)))  # of the arrows of one sequence after another


@dataclass(frozen=True, slots=True)
class Placed:
    """A block of a recording, which knows its device from the pool that it is in."""

    device: str
    block_number: int


@dataclass(frozen=True, slots=True)
class Link:
    """One entry of a block table."""

    index: int  # of the logical block
    device: str
    number: int  # of the physical block
    filled: int | None  # tokens in it; None where the sequence's length is not known

    @property
    def place(self) -> tuple[str, int]:
        """Which physical block it is, CPU blocks after GPU blocks."""
        return "" if self.device == "GPU" else self.device, self.number

    @property
    def target(self) -> str:
        """The physical block in words."""
        return _named(self.place)


@dataclass(frozen=True, slots=True)
class Table:
    """The block table of one owner as plain numbers: its links, and `num_tokens` where the length is known."""

    owner: Owner
    links: tuple[Link, ...]
    num_tokens: int | None


@dataclass(frozen=True, slots=True)
class Map:
    """All tables, and the copies that come before the step computes."""

    tables: tuple[Table, ...]
    copies: tuple[tuple[int, int], ...]
    block_size: int | None
    holders: Mapping[tuple[str, int], Sequence[Owner]]  # physical block -> who has it, in memory order

    @property
    def num_links(self) -> int:
        """Logical blocks of all sequences."""
        return sum(len(table.links) for table in self.tables)


def tables(
    source: Any,
    *,
    lengths: Mapping[Any, Any] | None = None,
    block_size: int | None = None,
    copies: Iterable[tuple[int, int]] = (),
    names: Mapping[Any, str] | None = None,
    title: str | None = None,
) -> Picture:
    """Draw which physical block holds each logical block of each sequence.

    `source` is a block manager, a recorded `Step`, or tables: name -> a list of blocks or of block numbers. `lengths`
    maps a sequence to its number of tokens (or to anything with `get_len()`) and shows how far each block of
    `block_size` tokens is filled. `copies` are (source, destination) GPU block numbers as `append_slots` returns
    them. `names` maps a key of the tables to the name to be shown. A step brings its own lengths and copies.

    Returns a `Picture`; its `describe()` says the same in words. ValueError when lengths come without a block size,
    or for more than a page can show (64 sequences, 512 logical blocks).

    >>> tables({"A": [7, 5], "B": [7, 3]}, lengths={"A": 6, "B": 7}, block_size=4, copies=[(5, 3)])
    2 sequences: 4 logical blocks on 3 physical blocks, 4 tokens each
    A, 6 tokens: 0 → block 7, 1 → block 5 (2 of 4)
    B, 7 tokens: 0 → block 7, 1 → block 3 (3 of 4)
    Shared: block 7 by A and B
    Copy: block 5 to block 3

    Logical and physical blocks: section 4.2 and figure 6 of the PagedAttention paper (Kwon et al., 2023).
    """
    found, tokens, pairs, size = _read(source)
    check_limits("the number of sequences", len(found), SEQUENCE_LIMITS, "pass the tables of fewer")
    state = _snapshot(
        found, {**tokens, **(lengths or {})}, [*pairs, *copies], size if block_size is None else block_size, names or {}
    )
    check_limits("the number of logical blocks", state.num_links, BLOCK_LIMITS, "pass the tables of fewer sequences")
    heading = one_line(title)
    text = "\n".join([heading] * bool(heading) + _describe(state))
    draw = _draw_arrows if max(state.num_links, len(state.holders)) <= MOST_ARROWS else _draw_rows
    return Picture(text, draw(state, heading))


def _read(source: Any) -> tuple[Mapping[Any, Any], dict[Any, int], list[tuple[int, int]], int | None]:
    """Tables, lengths, copies and block size, as far as the source knows them."""
    if isinstance(source, Mapping):
        return source, {}, [], None
    if hasattr(source, "block_tables"):
        return source.block_tables, {}, [], source.block_size
    if not all(hasattr(source, name) for name in ("gpu", "cpu")):
        raise TypeError(
            f"a {type(source).__name__} has no block_tables; pass a block manager, a step or a dict of tables"
        )
    found: dict[Any, Any] = {}
    for pool in (source.gpu, source.cpu):
        for name, table in pool.tables.items():
            found[name] = [Placed(pool.device, block.block_number) for block in table]
    return found, dict(source.num_tokens), list(source.blocks_to_copy), source.block_size


def _snapshot(
    found: Mapping[Any, Any],
    lengths: Mapping[Any, Any],
    copies: Iterable[tuple[int, int]],
    block_size: int | None,
    names: Mapping[Any, str],
) -> Map:
    if block_size is None and lengths:
        raise ValueError("lengths need a block_size, in tokens, to show how far each block is filled")
    shown = [one_line(names.get(key, f"seq {key}" if isinstance(key, int) else key)) for key in found]
    result = []
    for key, name, letter in zip(found, shown, letters(shown), strict=True):
        length = lengths.get(key)
        num_tokens = None if length is None else int(length.get_len() if hasattr(length, "get_len") else length)
        links = tuple(_link(i, entry, num_tokens, block_size) for i, entry in enumerate(found[key]))
        owner = Owner(name, letter, tuple(link.number for link in links))
        result.append(Table(owner, links, num_tokens))
    pairs = tuple((int(source), int(target)) for source, target in copies)
    return Map(tuple(result), pairs, block_size, _holders(result, pairs))


def _holders(found: Iterable[Table], copies: Iterable[tuple[int, int]]) -> dict[tuple[str, int], list[Owner]]:
    """Physical block -> who has it in a table, in memory order; the two ends of a copy are among them."""
    holders: dict[tuple[str, int], list[Owner]] = {("", number): [] for pair in copies for number in pair}
    for table in found:
        for place in dict.fromkeys(link.place for link in table.links):
            holders.setdefault(place, []).append(table.owner)
    return dict(sorted(holders.items()))


def _link(index: int, entry: Any, num_tokens: int | None, block_size: int | None) -> Link:
    device = getattr(entry, "device", "GPU")
    filled = None
    if num_tokens is not None and block_size is not None:
        filled = min(block_size, max(0, num_tokens - index * block_size))
    return Link(index, str(getattr(device, "name", device)), int(getattr(entry, "block_number", entry)), filled)


def _describe(state: Map) -> list[str]:
    lines = [_headline(state)]
    for table in state.tables:
        tokens = "" if table.num_tokens is None else f", {count_of(table.num_tokens, 'token')}"
        links = ", ".join(_link_in_words(link, state.block_size) for link in table.links)
        lines.append(f"{table.owner.label}{tokens}: {links or 'no blocks'}")
    shared = [f"{_named(place)} by {_names(owners)}" for place, owners in state.holders.items() if len(owners) > 1]
    lines += [f"Shared: {'; '.join(shared)}"] * bool(shared)
    lines += [f"Copy: block {source} to block {target}" for source, target in state.copies]
    return lines + [_too_long(table, state.block_size) for table in state.tables if _too_long(table, state.block_size)]


def _headline(state: Map) -> str:
    used = sum(bool(owners) for owners in state.holders.values())
    logical, physical = count_of(state.num_links, "logical block"), count_of(used, "physical block")
    size = "" if state.block_size is None else f", {count_of(state.block_size, 'token')} each"
    return f"{count_of(len(state.tables), 'sequence')}: {logical} on {physical}{size}"


def _link_in_words(link: Link, block_size: int | None) -> str:
    part = "" if link.filled in (None, block_size) else f" ({link.filled} of {block_size})"
    return f"{link.index} → {link.target}{part}"


def _named(place: tuple[str, int]) -> str:
    device, number = place
    return f"{device} block {number}".strip()


def _names(owners: Sequence[Owner]) -> str:
    return listed([owner.letter for owner in owners])


def _too_long(table: Table, block_size: int | None) -> str:
    """What is wrong where a sequence is longer than its table; empty where it is not."""
    if table.num_tokens is None or block_size is None or table.num_tokens <= len(table.links) * block_size:
        return ""
    room = count_of(len(table.links) * block_size, "token")
    return f"Mismatch: {table.owner.label} has {count_of(table.num_tokens, 'token')}, its table has room for {room}"


def _begin(state: Map, title: str, width: float) -> tuple[Sheet, float]:
    """A sheet with its titles and what is wrong; and where they end."""
    sheet = Sheet(max(MIN_WIDTH, int(width)))
    y = float(sheet.titles(title, _headline(state)))
    for table in state.tables:
        wrong = _too_long(table, state.block_size)
        if wrong:
            sheet.words(MARGIN, y + 2, wrong, 11, bold=True, room=sheet.width - 2 * MARGIN, colour=ALARM)
            y += 18
    return sheet, y + 2


def _logical_height(state: Map) -> int:
    return 54 if state.block_size is not None and any(table.num_tokens is not None for table in state.tables) else 42


def _draw_logical(sheet: Sheet, state: Map, table: Table, link: Link, x: float, y: float, copied: str = "") -> None:
    """A logical block: its index, the physical block behind it, and how far it is filled."""
    height = _logical_height(state)
    sheet.words(x + 4, y + 8, str(link.index), 9, colour=QUIET, room=WIDTH / 2 - 5)
    owners = len(state.holders[link.place])
    if owners > 1:
        sheet.words(x + WIDTH - 3, y + 8, f"×{owners}", 9, bold=True, align=1, room=WIDTH / 2 - 4)
    arrow = f"→{link.target.replace(' block', '').removeprefix('block ')}"
    sheet.words(x + WIDTH / 2, y + 22, copied or arrow, 12, bold=True, align=0.5, room=WIDTH - 4)
    if link.filled is None or state.block_size is None:
        fill(sheet, table.owner, x, y, WIDTH, height, strip=8)
    else:
        sheet.words(x + WIDTH / 2, y + 37, f"{link.filled}/{state.block_size}", 9, align=0.5, room=WIDTH - 4)
        fill(sheet, table.owner, x, y, WIDTH, height, strip=8)
        part = WIDTH * link.filled / state.block_size
        sheet.box(x + part, y + height - 8, WIDTH - part, 8, facecolor=PAPER, zorder=FOOT)
        sheet.outline(x, y + height - 8, WIDTH, 8)
    sheet.outline(x, y, WIDTH, height)


def _draw_arrows(state: Map, title: str) -> Sheet:
    """Logical blocks above, physical ones below in memory order, an arrow for each entry of a table."""
    groups = [max(1, len(table.links)) for table in state.tables]
    width = max(sum(groups) * PITCH + GROUP_GAP * (len(groups) - 1), len(state.holders) * PITCH)
    sheet, top = _begin(state, title, 2 * MARGIN + GUTTER + width)
    y, left = top + 20, float(MARGIN + GUTTER)
    feet = y + _logical_height(state) + ARROWS_HEIGHT
    sheet.words(MARGIN, y + _logical_height(state) / 2, "logical", 11, colour=QUIET)
    sheet.words(MARGIN, feet + 20, "physical", 11, colour=QUIET)
    at = {place: left + i * PITCH for i, place in enumerate(state.holders)}
    for place, x in at.items():
        _draw_physical(sheet, place, state.holders[place], x, feet)
    for turn, (table, size) in enumerate(zip(state.tables, groups, strict=True)):
        _draw_label(sheet, table, left, y - 9, size * PITCH)
        for link in table.links:
            x = left + link.index * PITCH
            _draw_logical(sheet, state, table, link, x, y)
            start = (x + WIDTH / 2, y + _logical_height(state))
            sheet.arrow(start, (at[link.place] + _aim(state, table, link), feet), 30, -34, linestyle=DASHES[turn % 4])
        left += size * PITCH + GROUP_GAP
    for source, target in state.copies:
        _draw_copy(sheet, at["", source] + WIDTH / 2, at["", target] + WIDTH / 2, feet + 40)
    bottom = feet + 54 + (ARCS_HEIGHT if state.copies else 0)
    sheet.height = sheet.legend(_legend(state, arrows=True), bottom) + MARGIN
    return sheet


def _aim(state: Map, table: Table, link: Link) -> float:
    """Where on a physical block the arrow of one of its owners ends."""
    owners = state.holders[link.place]
    return WIDTH * (owners.index(table.owner) + 1) / (len(owners) + 1)


def _draw_label(sheet: Sheet, table: Table, x: float, y: float, room: float) -> None:
    """Whose logical blocks these are."""
    tokens = "" if table.num_tokens is None else f", {count_of(table.num_tokens, 'token')}"
    sheet.words(x, y, table.owner.letter + (tokens if table.links[1:] else ""), 11, bold=True, room=room)
    if not table.links:
        sheet.words(x, y + 24, "no blocks", 9, colour=QUIET, room=WIDTH)


def _draw_physical(sheet: Sheet, place: tuple[str, int], owners: Sequence[Owner], x: float, y: float) -> None:
    """A physical block: its number, its owners side by side, and how many they are."""
    for band, owner in enumerate(owners):
        width = WIDTH / len(owners)
        fill(sheet, owner, x + band * width, y, width, 40, strip=8)
    name = _named(place).removeprefix("block ").replace(" block", "")
    sheet.words(x + WIDTH / 2, y + 18, name, 13, bold=True, align=0.5, room=WIDTH - 4)
    if len(owners) > 1:
        sheet.words(x + WIDTH - 3, y + 8, f"×{len(owners)}", 9, bold=True, align=1, room=WIDTH / 2 - 4)
    sheet.outline(x, y, WIDTH, 40, INK if owners else LINE)


def _draw_copy(sheet: Sheet, source: float, target: float, y: float) -> None:
    """A dashed curve below the physical blocks."""
    sheet.arrow((source, y), (target, y), ARCS_HEIGHT, ARCS_HEIGHT, linewidth=1.6, linestyle=(0, (4, 2)))
    middle, low = (source + target) / 2, y + ARCS_HEIGHT * 0.77
    sheet.box(middle - 17, low - 8, 34, 15, facecolor=PAPER, zorder=EDGE + 0.5)
    sheet.words(middle, low, "copy", 11, bold=True, align=0.5)


def _draw_rows(state: Map, title: str) -> Sheet:
    """A line for each sequence, wrapped; every logical block names its physical one."""
    columns = max(8, min(MOST_ARROWS, max(len(table.links) for table in state.tables)))
    left, pitch = MARGIN + GUTTER / 2, _logical_height(state) + 5
    sheet, y = _begin(state, title, left + columns * PITCH + MARGIN)
    copied_from = {("", target): source for source, target in state.copies}
    for table in state.tables:
        rows = max(1, -(-len(table.links) // columns))
        sheet.box(MARGIN, y, 20, rows * pitch - 5, facecolor=pale(table.owner.colour))
        sheet.words(MARGIN + 10, y + 20, table.owner.letter, 13, bold=True, align=0.5, room=18)
        for link in table.links:
            row, column = divmod(link.index, columns)
            source = copied_from.get(link.place)
            copied = "" if source is None else f"{source}⇒{link.number}"
            _draw_logical(sheet, state, table, link, left + column * PITCH, y + row * pitch, copied)
        if not table.links:
            sheet.words(left, y + 20, "no blocks", 11, colour=QUIET)
        y += rows * pitch + 6
    sheet.height = sheet.legend(_legend(state, arrows=False), y + 8) + MARGIN
    return sheet


def _legend(state: Map, *, arrows: bool) -> list[tuple[Key, str]]:
    entries: list[tuple[Key, str]] = []
    for table in state.tables:
        tokens = "" if table.num_tokens is None else f", {count_of(table.num_tokens, 'token')}"
        entries.append((owner_key(table.owner), f"{table.owner.short_name}: {table.owner.size}{tokens}"))
    if not arrows:
        entries.append((_arrow_key, "its physical block"))
    if any(len(owners) > 1 for owners in state.holders.values()):
        entries.append((shared_key, "physical block in n tables"))
    if state.copies:
        entries.append(
            (_copy_key, "copied before the step computes") if arrows else (_copied_key, "block m is copied to n first")
        )
    return entries


def _arrow_key(sheet: Sheet, x: float, y: float) -> None:
    sheet.words(x + KEY_WIDTH / 2, y + KEY_HEIGHT / 2, "→n", 11, bold=True, align=0.5)


def _copied_key(sheet: Sheet, x: float, y: float) -> None:
    sheet.words(x + KEY_WIDTH / 2, y + KEY_HEIGHT / 2, "m⇒n", 11, bold=True, align=0.5)


def _copy_key(sheet: Sheet, x: float, y: float) -> None:
    style = {"linewidth": 1.6, "linestyle": (0, (4, 2))}
    sheet.arrow((x + 3, y + 2), (x + KEY_WIDTH - 3, y + 2), 16, 16, **style)

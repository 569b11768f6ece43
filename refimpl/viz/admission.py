"""Who may come in: the answer of `can_allocate` for every number of blocks that a prompt needs and that is free.

The answers are asked for and never worked out here, so an inequality that is wrong shows as another picture. They
stand in a grid, and where two answers meet there is a heavy line.
"""

import copy
import enum
from collections.abc import Callable, Mapping
from itertools import groupby
from typing import Any, TypeAlias

from refimpl.sequence import Sequence as TokenSequence
from refimpl.sequence import SequenceGroup
from refimpl.viz.owners import pale
from refimpl.viz.sheet import (
    COLOURS,
    EDGE,
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
from refimpl.viz.words import check_limits, one_line, ranges

POOL_LIMITS = (1, 32)  # blocks
MARK_LIMITS = (0, 8)
CELL, AXIS, BEYOND = 22, 40, 2  # CSS pixels of a cell and left of the grid; columns beyond the pool's size
ANSWERS = {"OK": (COLOURS[2], "O"), "LATER": (COLOURS[0], "L"), "NEVER": (COLOURS[3], "N")}  # colour, letter
NO_ANSWER = (PAPER, "?")

Answers: TypeAlias = dict[tuple[int, int], str]
"""(required, free) -> the answer's name, in blocks."""


def admission(
    source: Any,
    *,
    num_gpu_blocks: int | None = None,
    marks: Mapping[str, tuple[int, int]] | None = None,
    title: str | None = None,
) -> Picture:
    """Draw OK, LATER and NEVER as regions over the blocks that a prompt needs and the blocks that are free.

    `source` is a block manager, or a function `can_allocate(required, free)` for a pool of `num_gpu_blocks`. A manager
    stays as it is: a copy of it is emptied, filled one block at a time, and asked. `marks` are points to show, a letter
    each: letter -> (required, free).

    Returns a `Picture`; its `describe()` says the same in words. ValueError for a pool of less than 1 or more than 32
    blocks, and for a mark outside the grid.

    >>> from refimpl import BlockSpaceManager
    >>> admission(BlockSpaceManager(16, 4, 0, watermark=0.25), marks={"A": (2, 3)})
    can_allocate over a pool of 4 GPU blocks
    1 required: LATER at 0 to 1 free, OK at 2 to 4
    2 required: LATER at 0 to 2 free, OK at 3 to 4
    3 required: LATER at 0 to 3 free, OK at 4
    4 to 6 required: NEVER at 0 to 4 free
    A: 2 required, 3 free: OK

    Source: vLLM 0.5.4, `vllm/core/block_manager_v1.py`, `BlockSpaceManagerV1.can_allocate`.
    """
    if num_gpu_blocks is None:
        emptied = copy.deepcopy(source)
        emptied.reset()
        num_gpu_blocks = int(emptied.get_num_free_gpu_blocks())
        check_limits("the number of GPU blocks", num_gpu_blocks, POOL_LIMITS, "draw a smaller pool")
        answers = _ask_manager(emptied, num_gpu_blocks)
    else:
        check_limits("the number of GPU blocks", num_gpu_blocks, POOL_LIMITS, "draw a smaller pool")
        answers = _ask_function(source, num_gpu_blocks)
    points = {one_line(name): point for name, point in (marks or {}).items()}
    check_limits("the number of marks", len(points), MARK_LIMITS)
    for name, point in points.items():
        if point not in answers:
            most = num_gpu_blocks + BEYOND
            raise ValueError(f"mark {name} is {point}; it can be (1 to {most} required, 0 to {num_gpu_blocks} free)")
    heading, headline = one_line(title), f"can_allocate over a pool of {num_gpu_blocks} GPU blocks"
    text = [heading] * bool(heading) + [headline, *_in_words(answers, num_gpu_blocks)]
    text += [f"{name}: {point[0]} required, {point[1]} free: {answers[point]}" for name, point in points.items()]
    return Picture("\n".join(text), _draw(answers, num_gpu_blocks, points, heading, headline))


def _ask_function(can_allocate: Callable[[int, int], Any], num_gpu_blocks: int) -> Answers:
    return {
        (required, free): _name(can_allocate(required, free))
        for required in range(1, num_gpu_blocks + BEYOND + 1)
        for free in range(num_gpu_blocks + 1)
    }


def _ask_manager(manager: Any, num_gpu_blocks: int) -> Answers:
    """Every pair, asked of an empty manager that is filled on the way."""
    size = manager.block_size
    answers = {}
    for free in range(num_gpu_blocks, -1, -1):
        for required in range(1, num_gpu_blocks + BEYOND + 1):
            seq = TokenSequence(-1, [0] * (required * size), size)
            answers[required, free] = _name(manager.can_allocate(SequenceGroup("asked", [seq])))
        if free:
            manager.gpu_allocator.allocate()
    return answers


def _name(answer: Any) -> str:
    """What an answer is called; a learner's own may be anything."""
    name = answer.name if isinstance(answer, enum.Enum) else ""
    return name if name in ANSWERS else "no answer"


def _in_words(answers: Answers, num_gpu_blocks: int) -> list[str]:
    """A line for each run of columns that are alike."""
    columns = [_column(answers, required, num_gpu_blocks) for required in range(1, num_gpu_blocks + BEYOND + 1)]
    return [
        f"{ranges([required for required, _ in run])} required: {column}"
        for column, run in groupby(enumerate(columns, start=1), lambda pair: pair[1])
    ]


def _column(answers: Answers, required: int, num_gpu_blocks: int) -> str:
    """The answers of one column, from nothing free up."""
    runs = groupby(range(num_gpu_blocks + 1), lambda free: answers[required, free])
    (first, where), *others = [(answer, ranges(list(free))) for answer, free in runs]
    return ", ".join([f"{first} at {where} free", *(f"{answer} at {where}" for answer, where in others)])


def _draw(
    answers: Answers, num_gpu_blocks: int, marks: Mapping[str, tuple[int, int]], title: str, headline: str
) -> Sheet:
    columns, rows = num_gpu_blocks + BEYOND, num_gpu_blocks + 1
    left = MARGIN + AXIS
    sheet = Sheet(max(MIN_WIDTH, left + columns * CELL + MARGIN))
    top = sheet.titles(title, headline) + 24
    foot = top + rows * CELL
    letters = {point: name for name, point in marks.items()}
    for (required, free), answer in answers.items():
        x, y = left + (required - 1) * CELL, foot - (free + 1) * CELL
        _fill(sheet, answer, x, y, CELL, CELL, letters.get((required, free)))
        if required > 1 and answers[required - 1, free] != answer:
            sheet.line([(x, y), (x, y + CELL)], linewidth=2)
        if free and answers[required, free - 1] != answer:
            sheet.line([(x, y + CELL), (x + CELL, y + CELL)], linewidth=2)
    for required, free in letters:
        sheet.outline(left + (required - 1) * CELL + 1, foot - (free + 1) * CELL + 1, CELL - 2, CELL - 2, linewidth=1.6)
    sheet.outline(left, top, columns * CELL, rows * CELL)
    _draw_axes(sheet, left, top, columns, rows)
    shown = [name for name in (*ANSWERS, "no answer") if name in answers.values()]
    entries = [(_key(name), name) for name in shown]
    entries += [(_key(answers[point], name), f"{point[0]} required, {point[1]} free") for name, point in marks.items()]
    sheet.height = sheet.legend(entries, foot + 46) + MARGIN
    return sheet


def _draw_axes(sheet: Sheet, left: int, top: int, columns: int, rows: int) -> None:
    """Numbers along both edges, every other one where there are many."""
    foot, step = top + rows * CELL, 1 if rows <= 17 else 2
    for required in range(1, columns + 1, step):
        sheet.words(left + (required - 0.5) * CELL, foot + 9, str(required), 9, align=0.5, colour=QUIET)
    for free in range(0, rows, step):
        sheet.words(left - 6, foot - (free + 0.5) * CELL, str(free), 9, align=1, colour=QUIET)
    sheet.words(left + columns * CELL, foot + 26, "blocks required →", 11, align=1)
    sheet.words(MARGIN, top - 12, "↑ blocks free", 11)


def _fill(sheet: Sheet, answer: str, x: float, y: float, width: float, height: float, mark: str | None = None) -> None:
    """A cell in the answer's colour with its letter, or a mark's in its place."""
    colour, letter = ANSWERS.get(answer, NO_ANSWER)
    sheet.box(x, y, width, height, facecolor=pale(colour))
    sheet.outline(x, y, width, height, LINE, linewidth=0.4, zorder=EDGE - 0.5)
    middle = (x + width / 2, y + height / 2)
    if mark is None:
        sheet.words(*middle, letter, 9, align=0.5, colour=QUIET)
    else:
        sheet.words(*middle, mark, 11, bold=True, align=0.5, room=width - 6)


def _key(answer: str, mark: str | None = None) -> Key:
    def draw(sheet: Sheet, x: float, y: float) -> None:
        _fill(sheet, answer, x, y, KEY_WIDTH, KEY_HEIGHT, mark)
        sheet.outline(x, y, KEY_WIDTH, KEY_HEIGHT, INK, linewidth=1.6 if mark else 0.8)

    return draw

"""A run over its steps: what each step computes, the queues, the free blocks, and what the scheduler had to undo.

A lane for each quantity, all over the same steps; a lane has its own scale, from 0 to the number beside its name. Up
to 32 steps every number is written out; beyond that the curves show them and the words say the turning points.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from refimpl.viz.owners import pale
from refimpl.viz.sheet import (
    COLOURS,
    EDGE,
    FOOT,
    INK,
    KEY_HEIGHT,
    KEY_WIDTH,
    LINE,
    MARGIN,
    QUIET,
    Key,
    Picture,
    Sheet,
)
from refimpl.viz.words import check_limits, count_of, one_line, ranges

STEP_LIMITS = (1, 800)
FEW = 32  # steps up to which every number is written
MOST_EVENTS = 12  # of a kind that are named one by one
WIDTH, MOST_STEP, GUTTER = 760, 46, 128  # CSS pixels: all steps at most, one step at most, the names of the lanes
LANE, POOL_LANE, STRIP, ROOF = 40, 66, 20, 22
EVENTS = {
    "recomputed": "recomputed",
    "swapped_out": "swapped out",
    "swapped_in": "swapped in",
    "ignored": "ignored",
    "aborted": "aborted",
    "blocks_to_copy": "blocks copied",
}


@dataclass(frozen=True, slots=True)
class Lane:
    """One quantity over the steps: its values, and the height and colour in which it is drawn."""

    name: str
    values: tuple[int, ...]
    top: int  # of the scale
    height: int
    colour: str
    watermark: int | None = None


def timeline(steps: Any, *, title: str | None = None) -> Picture:
    """Draw a run: what each step computes, queues, free blocks with the watermark, preemptions, swaps and copies.

    `steps` are recorded `Step`s, or a `Recorder`. `title` stands above the headline.

    Returns a `Picture`; its `describe()` says the same in words. ValueError for no step or more than a page can show
    (800: pass a part, such as steps[:800]).

    >>> from refimpl import CacheConfig, Scheduler, SchedulerConfig, Sequence, SequenceGroup
    >>> from refimpl.simulation.recording import Recorder
    >>> cache_config = CacheConfig(block_size=4, num_gpu_blocks=8, num_cpu_blocks=0)
    >>> scheduler = Scheduler(SchedulerConfig(max_model_len=32), cache_config)
    >>> scheduler.add_seq_group(SequenceGroup("a", [Sequence(0, [1, 2, 3, 4, 5], block_size=4)]))
    >>> recorder = Recorder(scheduler)
    >>> _ = recorder.record(scheduler.schedule(now=0.0)[1], now=0.0)
    >>> print(timeline(recorder).describe())
    1 step: 1 prefill, 0 decode, 0 idle
    waiting requests: 0 throughout
    running requests: 1 throughout
    swapped requests: 0 throughout
    free GPU blocks (of 8): 6 throughout; watermark 0
    Step 1: prefill of a (5 tokens); waiting 0, running 1, swapped 0; 6 GPU blocks free

    The three queues and preemption: section 4.5 of the PagedAttention paper (Kwon et al., 2023).
    """
    steps = list(getattr(steps, "steps", steps))
    check_limits("the number of steps", len(steps), STEP_LIMITS, f"pass a part, such as steps[:{STEP_LIMITS[1]}]")
    heading, lanes = one_line(title), _lanes(steps)
    text = "\n".join([heading] * bool(heading) + _describe(steps, lanes))
    return Picture(text, _draw(steps, lanes, heading))


def _lanes(steps: Sequence[Any]) -> list[Lane]:
    lanes = []
    for name in ("waiting", "running", "swapped"):
        values = tuple(len(getattr(step, name)) for step in steps)
        lanes.append(Lane(f"{name} requests", values, max(values), LANE if max(values) else 8, COLOURS[1]))
    for device in ("gpu", "cpu"):
        num_blocks = getattr(steps[0], device).num_blocks
        if num_blocks or device == "gpu":
            values = tuple(getattr(step, device).num_free for step in steps)
            mark = steps[0].watermark_blocks if device == "gpu" else None
            height = POOL_LANE if device == "gpu" else LANE
            lanes.append(Lane(f"free {device.upper()} blocks", values, num_blocks, height, COLOURS[2], mark))
    return lanes


def _happened(steps: Sequence[Any]) -> dict[str, list[tuple[str, ...]]]:
    """Kind of event -> what it happened to, step by step; only kinds that happened at all."""
    found = {}
    for attribute, name in EVENTS.items():
        events = [tuple(_event(event) for event in getattr(step, attribute)) for step in steps]
        if any(events):
            found[name] = events
    return found


def _event(event: Any) -> str:
    return event if isinstance(event, str) else "→".join(map(str, event))


def _describe(steps: Sequence[Any], lanes: Sequence[Lane]) -> list[str]:
    lines = [_headline(steps), *(_lane_in_words(steps, lane) for lane in lanes)]
    for name, events in _happened(steps).items():
        at = [(step.number, what) for step, what in zip(steps, events, strict=True) if what]
        if len(at) <= MOST_EVENTS:
            parts = "; ".join(f"step {number}: {', '.join(what)}" for number, what in at)
        else:
            parts = f"{sum(len(what) for _, what in at)} in steps {ranges([number for number, _ in at])}"
        lines.append(f"{name}: {parts}")
    return lines + [_step_in_words(step) for step in steps] * (len(steps) <= FEW)


def _headline(steps: Sequence[Any]) -> str:
    kinds = [step.kind for step in steps]
    counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in ("prefill", "decode", "idle"))
    first, last = steps[0].number, steps[-1].number
    return f"{count_of(len(steps), 'step')}{f' ({first} to {last})' if len(steps) > 1 else ''}: {counts}"


def _lane_in_words(steps: Sequence[Any], lane: Lane) -> str:
    """Where the lane begins, turns and ends; and for a pool where it is below the watermark."""
    values = lane.values
    of = "" if lane.name.endswith("requests") else f" (of {lane.top})"
    text = f"{lane.name}{of}: {values[0]} throughout"
    if len(set(values)) > 1:
        turn, extreme = ("fewest", min(values)) if of else ("most", max(values))
        at = steps[values.index(extreme)].number
        text = f"{lane.name}{of}: first {values[0]}, {turn} {extreme} (step {at}), last {values[-1]}"
    if lane.watermark is not None:
        below = [step.number for step, value in zip(steps, values, strict=True) if value < lane.watermark]
        where = "step" if len(below) == 1 else "steps"
        text += f"; watermark {lane.watermark}" + (f", below it in {where} {ranges(below)}" if below else "")
    return text


def _step_in_words(step: Any) -> str:
    what = step.kind
    if step.scheduled:
        what = f"{step.kind} of {', '.join(step.scheduled)} ({count_of(step.num_batched_tokens, 'token')})"
    queues = ", ".join(f"{name} {len(getattr(step, name))}" for name in ("waiting", "running", "swapped"))
    return f"Step {step.number}: {what}; {queues}; {count_of(step.gpu.num_free, 'GPU block')} free"


def _draw(steps: Sequence[Any], lanes: Sequence[Lane], title: str) -> Sheet:
    pitch = min(MOST_STEP, WIDTH / len(steps))
    left = MARGIN + GUTTER
    marked = any(lane.watermark is not None for lane in lanes)
    sheet = Sheet(max(560, int(left + pitch * len(steps) + (78 if marked else 0) + MARGIN)))
    y = sheet.titles(title, _headline(steps)) + 6
    _draw_kinds(sheet, steps, left, y, pitch)
    y += STRIP
    for lane in lanes:
        _draw_lane(sheet, lane, left, y, pitch)
        y += ROOF + lane.height
    y += 10
    for name, events in _happened(steps).items():
        _draw_events(sheet, name, events, left, y, pitch)
        y += STRIP + 4
    _draw_axis(sheet, steps, left, y + 2, pitch)
    sheet.height = sheet.legend(_legend(steps), y + 34) + MARGIN
    return sheet


def _name(sheet: Sheet, y: float, name: str, scale: str = "") -> None:
    """The name of a lane, left of it, and where its scale ends."""
    sheet.words(MARGIN, y, name, 11, bold=True, room=GUTTER - 14)
    sheet.words(MARGIN, y + 15, scale, 9, colour=QUIET, room=GUTTER - 14)


def _draw_kinds(sheet: Sheet, steps: Sequence[Any], left: float, y: float, pitch: float) -> None:
    """What each step computes: steps of one kind in a row are one box."""
    _name(sheet, y + STRIP / 2, "computes")
    x = left
    for kind, run in groupby(step.kind for step in steps):
        size = len(list(run))
        _draw_kind(sheet, kind, x, y, max(size * pitch, 1.6), STRIP)
        if len(steps) <= FEW:
            for place in range(size):
                sheet.words(x + (place + 0.5) * pitch, y + 7, kind[0].upper(), 9, bold=True, align=0.5)
        x += size * pitch
    sheet.outline(left, y, x - left, STRIP)


def _draw_kind(sheet: Sheet, kind: str, x: float, y: float, width: float, height: float) -> None:
    """A prefill is tall, a decode low and hatched at its foot, an idle step empty."""
    if kind == "prefill":
        sheet.box(x, y, width, height, facecolor=COLOURS[0])
    elif kind == "decode":
        sheet.box(x, y + height - 7, width, 7, facecolor=COLOURS[1], edgecolor=INK, hatch="/////")


def _draw_lane(sheet: Sheet, lane: Lane, left: float, y: float, pitch: float) -> None:
    """A curve in steps over the lane's own scale, and the watermark where there is one."""
    num_steps, foot = len(lane.values), y + ROOF + lane.height
    heights = [lane.height * value / max(lane.top, 1) for value in lane.values]
    _name(sheet, foot - lane.height / 2 - 7, lane.name, f"0 to {lane.top}" if lane.top else "0")
    curve = [(left + (i + side) * pitch, foot - height) for i, height in enumerate(heights) for side in (0, 1)]
    end = left + num_steps * pitch
    sheet.area([(left, foot), *curve, (end, foot)], facecolor=pale(lane.colour))
    sheet.line(curve, linewidth=1.3)
    sheet.line([(left, foot), (end, foot)], edgecolor=LINE, zorder=FOOT)
    mark = None
    if lane.watermark is not None:
        mark = foot - lane.height * min(1, lane.watermark / max(lane.top, 1))
        sheet.line([(left, mark), (end + 6, mark)], linewidth=1.3, linestyle=(0, (5, 3)), zorder=EDGE + 0.5)
        sheet.words(end + 9, mark - 3, f"watermark {lane.watermark}", 9, bold=True, room=80)
    if num_steps <= FEW:
        for i, (value, height) in enumerate(zip(lane.values, heights, strict=True)):
            top = foot - height if mark is None else min(foot - height, mark)
            sheet.words(left + (i + 0.5) * pitch, top - 8, str(value), 9, align=0.5, room=pitch - 2)


def _draw_events(
    sheet: Sheet, name: str, events: Sequence[tuple[str, ...]], left: float, y: float, pitch: float
) -> None:
    """A mark at each step in which something happened: who, where there is room for it."""
    total = sum(map(len, events))
    _name(sheet, y + STRIP / 2, f"{name}: {total}")
    end = left + len(events) * pitch
    sheet.line([(left, y + STRIP), (end, y + STRIP)], edgecolor=LINE, zorder=FOOT)
    for i, what in enumerate(events):
        if not what:
            continue
        x = left + i * pitch
        if len(events) > FEW:
            sheet.box(x, y + 3, max(pitch, 1.6), STRIP - 3, facecolor=INK)
            continue
        sheet.box(x + 1, y + 2, pitch - 2, STRIP - 4, facecolor=pale(COLOURS[5]))
        sheet.outline(x + 1, y + 2, pitch - 2, STRIP - 4)
        words = what[0] if len(what) == 1 and len(what[0]) <= 6 else f"{len(what)}×"
        sheet.words(x + pitch / 2, y + STRIP / 2, words, 9, bold=True, align=0.5, room=pitch - 5)


def _draw_axis(sheet: Sheet, steps: Sequence[Any], left: float, y: float, pitch: float) -> None:
    """Step numbers, as many as can be read."""
    _name(sheet, y + 10, "step")
    every = next(every for every in (1, 2, 5, 10, 20, 50, 100, 200) if every * pitch >= 24)
    for i, step in enumerate(steps):
        if every == 1 or step.number % every == 0:
            x = left + (i + 0.5) * pitch
            sheet.line([(x, y), (x, y + 4)], edgecolor=QUIET)
            sheet.words(x, y + 11, str(step.number), 9, align=0.5)


def _legend(steps: Sequence[Any]) -> list[tuple[Key, str]]:
    entries: list[tuple[Key, str]] = []
    for kind in ("prefill", "decode", "idle"):
        if any(step.kind == kind for step in steps):
            what = {"prefill": "prompts", "decode": "one token for each sequence", "idle": "nothing"}[kind]
            entries.append((_kind_key(kind), f"{kind}: {what}"))
    if _happened(steps):
        entries.append((_event_key(len(steps) <= FEW), "happened in this step"))
    return entries


def _kind_key(kind: str) -> Key:
    def draw(sheet: Sheet, x: float, y: float) -> None:
        _draw_kind(sheet, kind, x, y, KEY_WIDTH, KEY_HEIGHT)
        sheet.outline(x, y, KEY_WIDTH, KEY_HEIGHT)
        sheet.words(x + KEY_WIDTH / 2, y + 6.5, kind[0].upper(), 9, bold=True, align=0.5)

    return draw


def _event_key(few: bool) -> Callable[[Sheet, float, float], None]:
    def draw(sheet: Sheet, x: float, y: float) -> None:
        if few:
            sheet.box(x, y + 1, KEY_WIDTH, STRIP - 4, facecolor=pale(COLOURS[5]))
            sheet.outline(x, y + 1, KEY_WIDTH, STRIP - 4)
        else:
            sheet.box(x + KEY_WIDTH / 2, y, 1.6, KEY_HEIGHT, facecolor=INK)

    return draw

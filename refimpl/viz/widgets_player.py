"""A recorded run, step by step: memory, block tables, queues and decisions, as they were.

The player owns one list of recorded steps and never changes it. What it shows of a step as HTML, `describe` says as
text, so that a plain cell beside the player can show the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

import ipywidgets

from refimpl.simulation.recording import Recorder, Step
from refimpl.viz import draw
from refimpl.viz.widgets_base import (
    LETTERS,
    PictureView,
    arrows,
    attempt,
    live_box,
    log_html,
    paragraphs_html,
    show,
    strong_html,
    table_html,
)

MOST_NAMES = 8  # of a queue
HEADS = ("Sequence", "On", "Tokens", "Block table")


class StepPlayer:
    """Plays a recorded run: with the play button, the step buttons, or the slider and the arrow keys.

    In a notebook it stands at the end of a cell; it needs no tag for nbval, since what is left of it in the file is a
    picture and text. A plain cell beside it says in text what a reader is to see in it, and asserts it::

        player = StepPlayer(recorder, start=7)
        assert recorder.steps[6].swapped_out == ("b",)
        player

        print(player.describe(7))

    Args:
        trace: the steps of a run, or the Recorder that has them.
        start: number of the step that is shown first, and that stays in the saved notebook; 1 is the first.
        interval: milliseconds a step while it plays.

    Raises:
        ValueError: for no steps, or a start that is none of them.
    """

    def __init__(self, trace: Recorder | Iterable[Step], *, start: int = 1, interval: int = 800) -> None:
        self.steps = tuple(trace.steps if isinstance(trace, Recorder) else trace)
        if not self.steps:
            raise ValueError("the trace has 0 steps; record at least 1 before it is played")
        self._check(start)
        self._letters = letters_of(self.steps)
        self._make_controls(start, interval)
        self._heading, self._facts, self._picture = ipywidgets.HTML(), ipywidgets.HTML(), PictureView()
        self._refresh()
        self._slider.observe(lambda _: self._refresh(), "value")
        self.widget = live_box([self._controls, self._heading, self._picture.widget, self._facts])

    def _make_controls(self, start: int, interval: int) -> None:
        last = len(self.steps)
        self._slider = ipywidgets.IntSlider(start, 1, last, description="Step", layout={"width": "24em"})
        self._play = ipywidgets.Play(
            value=start, min=1, max=last, interval=interval, show_repeat=False, tooltip="Play the steps"
        )
        ipywidgets.jslink((self._play, "value"), (self._slider, "value"))
        self._back, self._next = (
            ipywidgets.Button(description=text, tooltip=f"{text} one step", layout={"width": "5em"})
            for text in ("Back", "Next")
        )
        self._back.on_click(lambda _: self.go(max(1, self.place - 1)))
        self._next.on_click(lambda _: self.go(min(last, self.place + 1)))
        layout = {"flex_flow": "row wrap", "align_items": "center"}
        self._controls = ipywidgets.Box([self._play, self._back, self._next, self._slider], layout=layout)

    @property
    def place(self) -> int:
        """Which step is shown; 1 is the first."""
        return int(self._slider.value)

    def go(self, place: int) -> None:
        """Show the step of this place. ValueError when there is none."""
        self._check(place)
        self._slider.value = place

    def describe(self, place: int | None = None) -> str:
        """What the player shows of a step, the one shown now when `place` is left out, as text."""
        place = self.place if place is None else place
        self._check(place)
        step = self.steps[place - 1]
        tables = [" | ".join(row) for row in _rows(step, self._letters)]
        picture = attempt(lambda: self._draw(step))
        memory = picture if isinstance(picture, str) else picture.describe()
        decisions = [line for line in ("Decisions:", *step.decisions) if step.decisions]
        return "\n".join([self._headline(place), *_events(step), *_queues(step), *tables, memory, *decisions])

    def __repr__(self) -> str:
        return self.describe()

    def _ipython_display_(self) -> None:
        name = f"A player of {len(self.steps)} steps, at step {self.place}"
        show(self.widget, name, attempt(lambda: self._draw(self.steps[self.place - 1])), self.describe())

    def _check(self, place: int) -> None:
        if not 1 <= place <= len(self.steps):
            raise ValueError(f"step {place} is none of the trace's steps 1 to {len(self.steps)}")

    def _headline(self, place: int) -> str:
        step = self.steps[place - 1]
        return (
            f"Step {place} of {len(self.steps)}, at {step.now:g} s: {step.kind}, "
            f"{step.num_batched_tokens} {'token' if step.num_batched_tokens == 1 else 'tokens'}"
        )

    def _draw(self, step: Step) -> draw.Picture:
        return draw.memory(step, names=self._letters)

    def _refresh(self) -> None:
        step = self.steps[self.place - 1]
        self._heading.value = strong_html(self._headline(self.place))
        self._picture.show(attempt(lambda: self._draw(step)))
        facts = [*_events(step), *_queues(step)]
        tables = table_html(HEADS, _rows(step, self._letters))
        self._facts.value = paragraphs_html(facts) + tables + log_html(step.decisions)


def _events(step: Step) -> list[str]:
    """What became of requests in this step, and which blocks its worker moves: a line each, none for nothing."""
    events = [
        ("Recomputed later", step.recomputed),
        ("Swapped out", step.swapped_out),
        ("Swapped in", step.swapped_in),
        ("Ignored", step.ignored),
        ("Aborted", step.aborted),
    ]
    moves = [
        ("GPU to CPU", step.blocks_to_swap_out),
        ("CPU to GPU", step.blocks_to_swap_in),
        ("Copied on the GPU", step.blocks_to_copy),
    ]
    lines = [f"{what}: {', '.join(names)}" for what, names in events if names]
    return lines + [f"{what}: {', '.join(map(arrows, pairs))}" for what, pairs in moves if pairs]


def _queues(step: Step) -> list[str]:
    return [
        f"{name}: {_shortly(queue)}"
        for name, queue in (("Waiting", step.waiting), ("Running", step.running), ("Swapped", step.swapped))
    ]


def _shortly(queue: Sequence[str]) -> str:
    """The head of a queue, and how long it is."""
    if not queue:
        return "nobody"
    more = f" … ({len(queue)} in all)" if len(queue) > MOST_NAMES else ""
    return ", ".join(queue[:MOST_NAMES]) + more


def _rows(step: Step, letters: Mapping[str, str]) -> list[tuple[str, ...]]:
    """A row for each sequence that has a block table: its name, where it is, its tokens and its blocks."""
    rows: list[tuple[str, ...]] = []
    for pool in (step.gpu, step.cpu):
        for name, table in pool.tables.items():
            letter = letters.get(name, name)
            blocks = arrows(block.block_number for block in table)
            tokens = str(step.num_tokens.get(name, "unknown"))
            rows.append((name if letter == name else f"{letter} ({name})", pool.device, tokens, blocks))
    return rows


def letters_of(steps: Sequence[Step]) -> dict[str, str]:
    """A letter for each sequence that ever has a table, the same in every step, so that it keeps its colour.

    Names of one letter stay. A letter is given again when its sequence has ended; with more than 26 sequences at a
    time nobody has a letter. The first of a request's sequences goes on under the letter of its prompt.
    """
    tables = [[*step.gpu.tables, *step.cpu.tables] for step in steps]
    if all(len(name) == 1 and name.isalpha() for names in tables for name in names):
        return {}
    letters: dict[str, str] = {}
    alive: dict[str, str] = {}  # name -> letter
    free = deque(LETTERS)
    for step, names in zip(steps, tables, strict=True):
        for name in [name for name in alive if name not in names and name not in step.num_tokens]:
            heir, letter = f"{name}.0", alive.pop(name)
            if heir in names:
                alive[heir] = letters[heir] = letter
            else:
                free.append(letter)
        for name in names:
            if name not in alive:
                if not free:
                    return {}
                alive[name] = letters[name] = free.popleft()
    return letters

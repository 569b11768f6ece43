"""One result for three readers: nbgrader reads the points, JupyterLab the panel, a terminal the sentence.

Invariant: `points` is between 0 and `max_points`, and reaches `max_points` only when the outcome is "passed".
"""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import Literal

Outcome = Literal["not attempted", "raised", "timed out", "misconception", "wrong", "not yours", "passed"]

_GOOD = "var(--jp-success-color1, #2e7d32)"  # JupyterLab's colour, and the one where there is no JupyterLab
_BAD = "var(--jp-error-color1, #c62828)"
_LOOK = {  # outcome -> sign, heading, colour of the edge
    "passed": ("✔", "Passed", _GOOD),
    "misconception": ("✘", "Not yet", _BAD),
    "wrong": ("✘", "Not yet", _BAD),
    "raised": ("✘", "Your code raised an error", _BAD),
    "timed out": ("✘", "Timed out", _BAD),
    "not yours": ("✘", "Not your own code", _BAD),
    "not attempted": ("○", "Not attempted yet", "var(--jp-border-color1, #757575)"),
}


@dataclass(frozen=True, slots=True, repr=False)
class CheckResult:
    """What a check found.

    Args:
        exercise_id, title: the step.
        outcome: one of the seven.
        points, max_points: marks given and marks possible.
        message: one or two sentences for the learner.
        misconception: id of the recognised misconception, or None.
        trace: the shortest history that shows it, a line an operation; the last line says what differs.
        printed: what the learner's code printed in that history, cut short.

    Raises:
        ValueError: for points out of range.

    It has no counterpart in vLLM.

    >>> CheckResult("03-free", "give back", "wrong", 1.5, 4, "Not yet.")
    1.5
    """

    exercise_id: str
    title: str
    outcome: Outcome
    points: float
    max_points: int
    message: str
    misconception: str | None = None
    trace: tuple[str, ...] = ()
    printed: str = ""

    def __post_init__(self) -> None:
        best = self.max_points if self.outcome == "passed" else self.max_points - 0.005
        if not 0 <= self.points <= best:
            raise ValueError(f"{self.points} points for {self.outcome!r}, the range is 0 to {best}")

    @property
    def passed(self) -> bool:
        """Whether everything held."""
        return self.outcome == "passed"

    @property
    def sentence(self) -> str:
        """The result in one line of plain text."""
        return f"{self.exercise_id}: {self.outcome} — {' '.join(self.message.split())}"

    def __repr__(self) -> str:
        return repr(float(self.points))

    def __str__(self) -> str:
        return "\n".join([self.sentence, *(f"    {line}" for line in self.trace)])

    def _repr_html_(self) -> str:
        sign, heading, edge = _LOOK[self.outcome]
        parts = [
            f'<div class="refimpl-check" data-exercise="{html.escape(self.exercise_id)}" '
            f'data-outcome="{self.outcome}" role="status" style="border: 1px solid '
            f"var(--jp-border-color2, #bdbdbd); border-left: 6px solid {edge}; padding: 0.6em 1em; "
            f"color: var(--jp-ui-font-color1, #212121); background: var(--jp-layout-color1, #ffffff); "
            f'font-family: var(--jp-content-font-family, sans-serif); max-width: 52em">',
            f"<div><strong>{sign} {heading}</strong> · {html.escape(self.exercise_id)}, {html.escape(self.title)} "
            f"· {self.points:g} of {self.max_points} {'point' if self.max_points == 1 else 'points'}</div>",
            f'<p style="margin: 0.4em 0">{prose(self.message)}</p>',
        ]
        if self.trace:
            heading = "How it got there:" if self.outcome == "timed out" else "The shortest way to see it:"
            parts += [f"<div>{heading}</div>", _block("\n".join(self.trace))]
        if self.printed:
            parts += ["<div>Your code printed meanwhile:</div>", _block(self.printed)]
        return "\n".join([*parts, "</div>"])


def prose(text: str) -> str:
    """Text as HTML: escaped, and `backquoted` words become code."""
    pieces = html.escape(text).split("`")
    if len(pieces) % 2 == 0:  # an unpaired backquote: leave the text as it is
        return "`".join(pieces)
    return "".join(f"<code>{piece}</code>" if i % 2 else piece for i, piece in enumerate(pieces))


def _block(text: str) -> str:
    return (
        '<pre style="margin: 0.3em 0; padding: 0.5em 0.8em; '
        "white-space: pre-wrap; word-break: normal; overflow-wrap: anywhere; "  # JupyterLab breaks lines inside words
        "color: var(--jp-content-font-color1, #212121); "
        f'background: var(--jp-layout-color2, #eeeeee)">{html.escape(text)}</pre>'
    )

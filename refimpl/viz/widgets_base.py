"""What both widgets are made of: pieces of HTML that read well in either theme, and a way to be shown twice.

A widget lives as long as its kernel, so that each cell that shows one also leaves a picture and its words, which stay
in the saved notebook. While the widget is alive a style sheet hides them, because they say the same.
"""

from __future__ import annotations

import base64
import html
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import ipywidgets
from IPython.display import display

from refimpl.viz.draw import Picture

LIVE = "refimpl-live"
LAB_WIDGETS = {"8": "3"}  # major of ipywidgets -> major of jupyterlab_widgets that shows its widgets

CHILD = f".jp-OutputArea-child:has(.{LIVE})"
STYLE = f"""<style>
{CHILD} + .jp-OutputArea-child, {CHILD} + .jp-OutputArea-child + .jp-OutputArea-child {{ display: none }}
.{LIVE} table.refimpl {{ border-collapse: collapse; margin: 0.3em 0; font-size: var(--jp-ui-font-size1, 13px) }}
.{LIVE} table.refimpl :is(th, td) {{ padding: 0.15em 0.9em 0.15em 0; text-align: left; vertical-align: top;
  border-bottom: 1px solid var(--jp-border-color2, #bdbdbd) }}
.{LIVE} pre {{ margin: 0.6em 0; padding: 0.5em 0.8em; line-height: 1.4;
  white-space: pre-wrap; word-break: normal; overflow-wrap: anywhere;
  color: var(--jp-content-font-color1, #212121); background: var(--jp-layout-color2, #eeeeee) }}
.{LIVE} .widget-html-content {{ line-height: 1.5; color: var(--jp-ui-font-color1, #212121) }}
</style>"""
MOST_ROWS = 40
MOST_DRAWN = 32  # pictures that a widget remembers
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def lab_problem() -> str:
    """Why JupyterLab would not show widgets, and what to do, in one line; empty when nothing is known to be wrong.

    Looks at the packages beside this one only. A JupyterLab in another environment has its own, unknown here.
    """
    kernel = version("ipywidgets")
    try:
        lab = version("jupyterlab_widgets")
    except PackageNotFoundError:
        return ""
    wanted = LAB_WIDGETS.get(kernel.partition(".")[0])
    if wanted is None or lab.partition(".")[0] == wanted:
        return ""
    return (
        f"ipywidgets {kernel} needs jupyterlab_widgets {wanted}, and {lab} is installed: "
        f'run pip install "jupyterlab_widgets=={wanted}.*" and reload the page.'
    )


def show(box: Any, name: str, picture: Picture | str, words: str) -> None:
    """Display the widget `box` under its name, and what is left when its kernel is gone: a picture and all in words."""
    problem = lab_problem() or "Its controls work while a kernel runs: run this cell."
    data = {**box._repr_mimebundle_(), "text/plain": f"{name}. {problem}"}
    put: Any = display
    put(data, raw=True)
    if isinstance(picture, Picture):
        data, metadata = picture._repr_mimebundle_()
        put(data, metadata=metadata, raw=True)
    folded = f"<details><summary>{name}, in words</summary><pre>{html.escape(words)}</pre></details>"
    put({"text/html": folded, "text/plain": words}, raw=True)


def attempt(make: Callable[[], Picture]) -> Picture | str:
    """The picture, or why there is none: what is drawn may be a learner's, and may be broken in any way."""
    try:
        return make()
    except Exception as error:  # noqa: BLE001  (a learner's manager may raise anything)
        return f"There is no picture of this: {in_words(error)}"


def in_words(error: Exception) -> str:
    """An error as a sentence; a KeyError would put its own in quotes."""
    said = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def arrows(numbers: Iterable[int]) -> str:
    """Block numbers in table order.

    >>> arrows([7, 6])
    '7 → 6'
    """
    return " → ".join(map(str, numbers))


class PictureView:
    """Owns the part of a widget that shows one picture at a time; what it drew lately it does not draw again."""

    def __init__(self) -> None:
        self.widget = ipywidgets.HTML()
        self._drawn: dict[str, str] = {}  # a picture in words, which say all of it -> the same as HTML

    def show(self, picture: Picture | str) -> None:
        """Show a picture, or the sentence that stands in its place."""
        if isinstance(picture, str):
            self.widget.value = f"<p>{html.escape(picture)}</p>"
            return
        words = picture.describe()
        if words not in self._drawn:
            if len(self._drawn) == MOST_DRAWN:
                del self._drawn[next(iter(self._drawn))]
            self._drawn[words] = image_html(picture)
        self.widget.value = self._drawn[words]


def image_html(picture: Picture) -> str:
    """A picture with its words for those who do not see it; its size is set, so that nothing jumps as it loads."""
    width, height = picture.size
    source = base64.b64encode(picture.png(quick=True)).decode()
    alt = html.escape(picture.describe(), quote=True)
    return (
        f'<img src="data:image/png;base64,{source}" alt="{alt}" width="{width}" height="{height}" '
        f'style="max-width: 100%; height: auto">'
    )


def table_html(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table, `heads` above its rows; what is more than a screen holds is counted below it."""
    lines = ["<tr>" + "".join(f'<th scope="col">{html.escape(head)}</th>' for head in heads) + "</tr>"]
    for row in rows[:MOST_ROWS]:
        lines.append("<tr>" + "".join(f"<td>{html.escape(str(entry))}</td>" for entry in row) + "</tr>")
    more = f"<p>and {len(rows) - MOST_ROWS} more</p>" if len(rows) > MOST_ROWS else ""
    return f'<table class="refimpl">{"".join(lines)}</table>{more}'


def strong_html(line: str) -> str:
    """The line that is to be read first."""
    return f"<strong>{html.escape(line)}</strong>"


def paragraphs_html(lines: Iterable[str]) -> str:
    """Lines of text below each other."""
    return "".join(f"<div>{html.escape(line)}</div>" for line in lines)


def log_html(lines: Iterable[str]) -> str:
    """Lines of text as they are; nothing for none."""
    text = "\n".join(lines)
    return f"<pre>{html.escape(text)}</pre>" if text else ""


def live_box(rows: Sequence[Any]) -> Any:
    """A column of widgets that hides what is left of it in the saved notebook as long as it is alive."""
    box = ipywidgets.VBox([ipywidgets.HTML(STYLE, layout={"display": "none"}), *rows])
    return box.add_class(LIVE)

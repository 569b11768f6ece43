"""What every picture is made of: a sheet of shapes, and the picture that shows it and says the same in words.

A sheet keeps its own light paper, because no single ink reads well on both JupyterLab's white and its near-black.
No matplotlib figure stays open, whatever the reader has set in matplotlib changes nothing, and nothing here knows what
a block is; the files beside this one decide what is drawn.
"""

import html
import io
import textwrap
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import FancyBboxPatch, PathPatch
from matplotlib.path import Path
from matplotlib.textpath import TextPath
from matplotlib.transforms import Affine2D
from PIL import Image

# The palette of Okabe and Ito (2008) without black, which is the ink.
COLOURS = ("#E69F00", "#56B4E9", "#009E73", "#CC79A7", "#0072B2", "#D55E00", "#F0E442")
HATCHES = ("/////", None, ".....", "\\\\\\\\\\", "-----", "xxxxx", "|||||", "+++++")
INK, QUIET, LINE, PAPER, ALARM = "#1a1a1a", "#404040", "#b8b8b8", "#ffffff", "#b00020"

# CSS pixels
MARGIN, MIN_WIDTH = 16, 384
LINE_HEIGHT, KEY_WIDTH, KEY_HEIGHT = 27, 26, 19
GROUND, FOOT, EDGE, RING, WORDS = range(1, 6)  # what lies on top of what

CSS_DPI, SHARPNESS, QUICK_SHARPNESS = 96, 2, 1.5  # image pixels for one CSS pixel

Style: TypeAlias = tuple[tuple[str, Any], ...]
Key: TypeAlias = Callable[["Sheet", float, float], None]
"""Draws a legend's key, KEY_WIDTH by KEY_HEIGHT, with its upper left corner at x, y."""

_BOX_CODES = np.array([Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY], Path.code_type)


class Sheet:
    """Owns the shapes of a drawing, in CSS pixels with y downwards, in layers of one style each.

    A shape is told its upper left corner, x and y, its width and height, its colour, and a style named as matplotlib's
    patches name it.

    Invariant: a layer is drawn in one call, so that hundreds of blocks cost a handful of calls; what lies on
    top is decided by the style's zorder alone.
    """

    def __init__(self, width: int) -> None:
        self.width = width
        self.height = 0
        self._layers: dict[Style, list[tuple[Any, Any]]] = {}  # style -> (vertices, codes) of each shape

    def _put(self, vertices: Any, codes: Any, style: dict[str, Any]) -> None:
        self._layers.setdefault(tuple(style.items()), []).append((vertices, codes))

    def box(self, x: float, y: float, width: float, height: float, **style: Any) -> None:
        """Add a rectangle."""
        corners = ((x, y), (x + width, y), (x + width, y + height), (x, y + height), (x, y))
        self._put(corners, _BOX_CODES, {"linewidth": 0, "zorder": GROUND, **style})

    def outline(self, x: float, y: float, width: float, height: float, colour: str = INK, **style: Any) -> None:
        """Add the thin edge of a box."""
        self.box(x, y, width, height, fill=False, edgecolor=colour, **{"linewidth": 0.8, "zorder": EDGE, **style})

    def ring(self, x: float, y: float, width: float, height: float) -> None:
        """Mark what is wrong or different: an edge that is thick, and around the box, not on it."""
        self.box(x - 1, y - 1, width + 2, height + 2, fill=False, edgecolor=ALARM, linewidth=2.2, zorder=RING)

    def line(self, points: Sequence[tuple[float, float]], **style: Any) -> None:
        """Add a line through `points`."""
        style = {"edgecolor": INK, "linewidth": 0.8, "zorder": EDGE, "capstyle": "butt", **style}
        self._put(points, _line_codes(len(points)), {"fill": False, **style})

    def area(self, points: Sequence[tuple[float, float]], **style: Any) -> None:
        """Add the area within `points`."""
        self._put(points, _line_codes(len(points)), {"linewidth": 0, "zorder": GROUND, **style})

    def arrow(
        self, start: tuple[float, float], end: tuple[float, float], leave: float, enter: float, **style: Any
    ) -> None:
        """Add a curve with a head at its end, vertical at both ends.

        It leaves `start` towards a point `leave` pixels below it and enters `end` from a point `enter` pixels below
        it; above where the number is negative.
        """
        (x0, y0), (x1, y1) = start, end
        neck = y1 + (6 if enter > 0 else -6)
        codes = np.array([Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4], Path.code_type)
        style = {"edgecolor": INK, "linewidth": 1.1, "zorder": EDGE, **style}
        self._put(((x0, y0), (x0, y0 + leave), (x1, y1 + enter), (x1, neck)), codes, {"fill": False, **style})
        base = y1 + (7 if enter > 0 else -7)
        corners = [(x1 - 4, base), (x1 + 4, base), (x1, y1), (x1 - 4, base)]
        self.area(corners, facecolor=style["edgecolor"], zorder=style["zorder"])

    def words(
        self,
        x: float,
        y: float,
        text: str,
        size: float,
        *,
        bold: bool = False,
        align: float = 0,
        room: float = float("inf"),
        colour: str = INK,
    ) -> None:
        """Write `text` in one line, its middle at height y and `align` of its width left of x, shrunk to fit `room`.

        `size` is the letters', which may be bold.
        """
        vertices, codes, width = _letter_shapes(text, size, bold)
        scale = min(1, room / width) if width else 1
        start = (x - align * width * scale, y + 0.36 * size * scale)
        placed = vertices * (scale, -scale) + start
        self._put(placed, codes, {"facecolor": colour, "linewidth": 0, "zorder": WORDS})

    def titles(self, title: str, headline: str) -> int:
        """Write the title, or the headline in its place, and below it the headline; returns where they end."""
        letters = int((self.width - 2 * MARGIN) / text_width("n", 14, bold=True))
        y = MARGIN + 7
        for line in textwrap.wrap(title, letters) or [headline]:
            self.words(MARGIN, y, line, 14, bold=True, room=self.width - 2 * MARGIN)
            y += 20
        if title and headline:
            self.words(MARGIN, y - 1, headline, 11, colour=QUIET)
            y += 18
        return y - 1

    def legend(self, entries: Sequence[tuple[Key, str]], y: float) -> int:
        """The entries, keys with a text each, as many in a line as fit; returns where the last line ends."""
        x: float = MARGIN
        for key, text in entries:
            end = x + KEY_WIDTH + 7 + text_width(text, 11)
            if x > MARGIN and end > self.width - MARGIN:
                end, x, y = end - x + MARGIN, MARGIN, y + LINE_HEIGHT
            key(self, x, y)
            self.words(x + KEY_WIDTH + 7, y + KEY_HEIGHT / 2, text, 11)
            x = end + 22
        return int(y) + KEY_HEIGHT

    def figure(self, sharpness: float = SHARPNESS) -> Figure:
        """A new matplotlib figure of the sheet on its own paper; pyplot does not know of it."""
        figure = Figure((self.width / CSS_DPI, self.height / CSS_DPI), dpi=CSS_DPI * sharpness)
        figure.patch.set_alpha(0)
        scale = figure.dpi / CSS_DPI
        pixels = Affine2D().scale(scale, -scale).translate(0, scale * self.height)
        card = FancyBboxPatch((1, 1), self.width - 2, self.height - 2, "round,pad=0,rounding_size=8")
        card.set(facecolor=PAPER, edgecolor=LINE, linewidth=0.7, zorder=0, transform=pixels)
        figure.add_artist(card)
        for style, shapes in self._layers.items():
            vertices, codes = zip(*shapes, strict=True)
            shape = Path(np.concatenate(vertices), np.concatenate(codes))
            figure.add_artist(PathPatch(shape, transform=pixels, **dict(style)))
        return figure


class Picture:
    """Owns one drawing and its description in words; both say the same.

    Invariant: neither changes after the picture is made. JupyterLab shows the image with the words folded
    below, because JupyterLab 4.6 gives an image no alt text; the metadata carries it for tools that do.
    """

    def __init__(self, text: str, sheet: Sheet) -> None:
        self._text = text
        self._sheet = sheet

    def describe(self) -> str:
        """The content of the picture, one fact a line; the same on every run."""
        return self._text

    def __repr__(self) -> str:
        return self._text

    @property
    def size(self) -> tuple[int, int]:
        """Width and height on a page, in CSS pixels."""
        return self._sheet.width, self._sheet.height

    def png(self, *, quick: bool = False) -> bytes:
        """The picture as PNG, with transparent corners; the same bytes on every call.

        `quick` is for a widget that draws at every step: fewer pixels and a larger file in half the time.
        """
        with matplotlib.rc_context(_settings()):
            canvas: Any = FigureCanvasAgg(self._sheet.figure(QUICK_SHARPNESS if quick else SHARPNESS))
            canvas.draw()
        image = Image.fromarray(np.asarray(canvas.buffer_rgba()))
        # Flat shapes need no more colours than this, and the notebook's file is a third of the size.
        image = image.quantize(256, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
        file = io.BytesIO()
        image.save(file, "png", **({"compress_level": 1} if quick else {}))
        return file.getvalue()

    def _repr_mimebundle_(self, **_: object) -> tuple[dict[str, Any], dict[str, Any]]:
        about = {"alt": self._text, "width": self._sheet.width, "height": self._sheet.height}
        return {"image/png": self.png(), "text/plain": self._text}, {"image/png": about}

    def _ipython_display_(self) -> None:
        import IPython.display

        show: Any = IPython.display.display
        data, metadata = self._repr_mimebundle_()
        words = f"<pre>{html.escape(self._text)}</pre>"
        show(data, metadata=metadata, raw=True)
        show({"text/html": f"<details><summary>This picture in words</summary>{words}</details>"}, raw=True)


def text_width(text: str, size: float, bold: bool = False) -> float:
    """The width of a line in CSS pixels, of letters as `Sheet.words` writes them."""
    return _letter_shapes(text, size, bold)[2]


def _settings() -> dict[Any, Any]:
    """Matplotlib's own defaults, whatever the reader has set; a backend would bring pyplot in."""
    defaults: dict[Any, Any] = dict(matplotlib.rcParamsDefault, **{"hatch.linewidth": 1.1})
    return {name: value for name, value in defaults.items() if name != "backend"}


def _line_codes(num_points: int) -> Any:
    codes = np.full(num_points, Path.LINETO, Path.code_type)
    codes[0] = Path.MOVETO
    return codes


@lru_cache(maxsize=4096)
def _letter_shapes(text: str, size: float, bold: bool) -> tuple[Any, Any, float]:
    """The vertices, codes and width of one line of text."""
    if not text.strip():
        return np.empty((0, 2)), np.empty(0, Path.code_type), 0.0
    font = FontProperties(family="DejaVu Sans", weight="bold" if bold else "normal")
    shape = TextPath((0, 0), text.replace("$", r"\$"), size=size, prop=font)
    vertices: Any = np.asarray(shape.vertices)
    return vertices, shape.codes, float(vertices[:, 0].max(initial=0))

"""What tests of pictures share: a learner's own block, and a picture as a reader's eye gets it."""

import io
from collections.abc import Iterator
from typing import Any

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.path import Path
from PIL import Image

from refimpl.viz import sheet
from refimpl.viz.draw import Picture


class LearnersBlock:
    def __init__(self, block_number: Any, ref_count: Any = 1) -> None:
        self.block_number = block_number
        self.ref_count = ref_count


def pixels(picture: Picture, **how: bool) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(picture.png(**how))).convert("RGBA"))


def has_colour(image: np.ndarray, colour: str) -> bool:
    """Whether a pixel has this colour, but for what the palette of 256 rounds away."""
    rgb = 255 * np.array(matplotlib.colors.to_rgb(colour))
    return bool((abs(image[..., :3] - rgb) <= 3).all(axis=-1).any())


def rendered(figure: Figure) -> np.ndarray:
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.array(canvas.buffer_rgba()).astype(int)


def luminance(rgb: np.ndarray) -> np.ndarray:
    """Relative luminance of sRGB colours in 0 to 255, as WCAG 2.2 defines it."""
    part = rgb[..., :3] / 255
    linear = np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)
    return linear @ np.array([0.2126, 0.7152, 0.0722])


def contrasts_of_text(picture: Picture, theme: str) -> Iterator[float]:
    """Each pixel in the full colour of a text, against what lies under it on a page of the theme's colour."""
    figure = picture._sheet.figure()
    figure.patch.set(facecolor=theme, alpha=1)
    words = [artist for artist in figure.artists if artist.zorder == sheet.WORDS]
    assert words, "the picture has no text"
    written = rendered(figure)
    for artist in words:
        artist.set_visible(False)
    ground = rendered(figure)
    for colour in {artist.get_facecolor() for artist in words}:
        ink = np.round(255 * np.array(colour)).astype(int)
        at = (written == ink).all(axis=-1) & (ground != ink).any(axis=-1)
        assert at.any(), "no pixel has the full colour of the text"
        pair = np.sort([luminance(written[at]), luminance(ground[at])], axis=0)
        yield float(((pair[1] + 0.05) / (pair[0] + 0.05)).min())


def overwritten(picture: Picture) -> bool:
    """Whether anything lies over a text."""
    figure = picture._sheet.figure()
    for artist in figure.artists:
        if artist.zorder == sheet.WORDS:
            artist.set_zorder(100)
    return bool((rendered(figure) != rendered(picture._sheet.figure())).any())


def runs_off(picture: Picture) -> bool:
    """Whether any shape reaches beyond the paper's inner margin of 6 CSS pixels."""
    width, height = picture.size
    for style, shapes in picture._sheet._layers.items():
        curved = dict(style).get("fill") is False  # control points of a curve lie beyond it
        for vertices, codes in shapes:
            drawn = (codes != Path.CLOSEPOLY) & ~(curved & (codes == Path.CURVE4))
            points = np.asarray(vertices)[drawn]
            if len(points) and ((points < 6).any() or (points > (width - 6, height - 6)).any()):
                return True
    return False

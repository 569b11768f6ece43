"""Who owns a block, as pictures show it: a letter, and a colour and hatch that follow from the letter.

An owner keeps its colour and hatch from one picture to the next as long as it keeps its letter, and nothing is told by
the colour alone. All pictures of blocks draw their owners with `fill` and name them with `Owner.label`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from matplotlib.colors import to_hex, to_rgb

from refimpl.viz.sheet import COLOURS, HATCHES, INK, KEY_HEIGHT, KEY_WIDTH, Key, Sheet
from refimpl.viz.words import count_of, shortened

PALENESS = 0.45  # the share of an owner's colour in the ground under its letter
MOST_LETTERS = 20  # of a sequence's name in the legend
SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


class Block(Protocol):
    """What a picture reads of a block; the reference's have it, and so do a learner's."""

    @property
    def block_number(self) -> int:
        """The place in its device's pool, from 0."""

    @property
    def ref_count(self) -> int:
        """The number of tables that are said to hold it."""


@dataclass(frozen=True, slots=True)
class Owner:
    """A sequence and its block table."""

    name: str
    letter: str
    block_numbers: tuple[int, ...]  # in table order; a number may come twice

    @property
    def label(self) -> str:
        """What the owner is called in words."""
        return self.name if self.name == self.letter else f"{self.letter} ({self.name})"

    @property
    def short_name(self) -> str:
        """What the owner is called in a legend."""
        return shortened(self.name, MOST_LETTERS)

    @property
    def size(self) -> str:
        """How many blocks it holds, each counted once."""
        return count_of(len(set(self.block_numbers)), "block")

    @property
    def style(self) -> int:
        """Which colour and hatch: by letter, so that an owner keeps them from one picture to the next."""
        return ord(self.letter[-1].upper()[0]) - ord("A")

    @property
    def colour(self) -> str:
        """The owner's full colour."""
        return COLOURS[self.style % len(COLOURS)]

    def place(self, number: int) -> str:
        """The owner's letter and, below it, which of its blocks this is."""
        return self.letter + str(self.block_numbers.index(number)).translate(SUBSCRIPTS)


def letters(names: Sequence[str]) -> list[str]:
    """A short mark for each name: the name where every name is one letter, else A, B, … Z, AA, AB, …

    >>> letters(["B", "C"]), letters(["parent", "child"])
    (['B', 'C'], ['A', 'B'])
    """
    if all(len(name) == 1 and name.isalpha() for name in names):
        return list(names)
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    return [(alphabet[i // 26 - 1] if i >= 26 else "") + alphabet[i % 26] for i in range(len(names))]


def pale(colour: str) -> str:
    """The ground on which letters read well."""
    red, green, blue = (1 - PALENESS * (1 - part) for part in to_rgb(colour))
    return to_hex((red, green, blue))


def fill(sheet: Sheet, owner: Owner, x: float, y: float, width: float, height: float, strip: float) -> None:
    """A pale ground, on which letters read well, over a strip of the owner's full colour and hatch.

    The box on `sheet`, `width` by `height` from its upper left corner at x, y, ends in the strip, of height `strip`.
    """
    sheet.box(x, y, width, height - strip, facecolor=pale(owner.colour))
    hatch = HATCHES[owner.style % len(HATCHES)]
    sheet.box(x, y + height - strip, width, strip, facecolor=owner.colour, edgecolor=INK, hatch=hatch)


def owner_key(owner: Owner) -> Key:
    """The owner's key in a legend."""

    def draw(sheet: Sheet, x: float, y: float) -> None:
        fill(sheet, owner, x, y, KEY_WIDTH, KEY_HEIGHT, strip=6)
        sheet.words(x + KEY_WIDTH / 2, y + 7, owner.letter, 9, bold=True, align=0.5, room=KEY_WIDTH - 4)
        sheet.outline(x, y, KEY_WIDTH, KEY_HEIGHT)

    return draw

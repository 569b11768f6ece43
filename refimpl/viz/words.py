"""How pictures put facts into words: counts, runs of numbers, lists, and the limits of a page.

Every helper gives the same text on every run; what it is told about is up to the caller.
"""

from collections.abc import Sequence


def count_of(count: int, thing: str) -> str:
    """A number and what it counts.

    >>> count_of(1, "block"), count_of(2, "block")
    ('1 block', '2 blocks')
    """
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def ranges(numbers: Sequence[int]) -> str:
    """Ascending numbers as text.

    >>> ranges([0, 1, 2, 5])
    '0 to 2, 5'
    """
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return ", ".join(str(a) if a == b else f"{a} to {b}" for a, b in runs) or "none"


def listed(parts: Sequence[str]) -> str:
    """Names in a row.

    >>> listed(["A"]), listed(["A", "B", "C"])
    ('A', 'A, B and C')
    """
    *first, last = parts
    return f"{', '.join(first)} and {last}" if first else last


def one_line(text: object) -> str:
    """A name or a title without line breaks or doubled blanks; None is no title.

    >>> one_line(" two  words ")
    'two words'
    """
    return "" if text is None else " ".join(str(text).split())


def shortened(text: str, most: int) -> str:
    """At most `most` letters of a text.

    >>> shortened("a long name", 7)
    'a long…'
    """
    return text if len(text) <= most else text[: most - 1] + "…"


def check_limits(name: str, value: int, limits: tuple[int, int], advice: str = "") -> None:
    """ValueError for what a page cannot show, with the number, the limits, and what to pass instead.

    >>> check_limits("columns", 3, (4, 64))
    Traceback (most recent call last):
    ValueError: columns is 3; a picture can show 4 to 64
    """
    least, most = limits
    if not least <= value <= most:
        raise ValueError(f"{name} is {value}; a picture can show {least} to {most}{advice and f': {advice}'}")

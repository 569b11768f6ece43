"""One result, three readers: nbgrader gets a number, JupyterLab a panel for any theme, a terminal a line."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any, get_args

import pytest
from learners import allocator

from refimpl.checks import CheckResult, check
from refimpl.checks.result import Outcome

OUTCOMES = get_args(Outcome)
LEARNERS_TEXT = "<script>alert(1)</script> & `code` \" ' {braces}"


def result(outcome: Outcome, **more: Any) -> CheckResult:
    points = 3.0 if outcome == "passed" else 1.2
    fields = {"message": LEARNERS_TEXT, "trace": (LEARNERS_TEXT,), "printed": LEARNERS_TEXT, **more}
    return CheckResult("03-free", LEARNERS_TEXT, outcome, points, 3, **fields)


class Tags(HTMLParser):
    """Opening tags with their attributes, the text, and whether every tag is closed in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_a_learners_text_stays_text(outcome: Outcome) -> None:
    page = Tags(result(outcome)._repr_html_())
    assert page.open == []
    assert {tag for tag, _ in page.tags} <= {"div", "strong", "p", "code", "pre"}
    assert page.text.count("<script>alert(1)</script> & ") == 4


@pytest.mark.parametrize("text", ["`", "a ` b", "``", "`x", "`a` `", "`<b>`", ""])
def test_backquotes_become_code_only_in_pairs(text: str) -> None:
    html = result("wrong", message=text, trace=(), printed="")._repr_html_()
    page = Tags(html)
    codes = sum(tag == "code" for tag, _ in page.tags)
    assert (page.open, codes) == ([], text.count("`") // 2 if text.count("`") % 2 == 0 else 0)
    assert "<b>" not in html


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_colours_are_the_themes_with_both_or_neither_set(outcome: Outcome) -> None:
    """V4: a lone colour cannot be read in the other theme."""
    for _, attributes in Tags(result(outcome)._repr_html_()).tags:
        style = dict(part.split(":", 1) for part in (attributes.get("style") or "").split(";") if part.strip())
        style = {name.strip(): value for name, value in style.items()}
        assert ("color" in style) == ("background" in style)
        for name in ("color", "background", "border", "border-left"):
            if name in style:
                assert re.search(r"var\(--jp-[a-z0-9-]+, #[0-9a-f]{6}\)", style[name]), style[name]
        assert not re.search(r"#[0-9a-fA-F]{3,6}\b(?!\))", attributes.get("style") or "")


def contrast(one: str, other: str) -> float:
    """WCAG 2's contrast of two colours such as #212121."""

    def luminance(colour: str) -> float:
        channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_the_colours_where_there_is_no_theme_have_contrast() -> None:
    html = result("wrong")._repr_html_()
    styles = [
        attributes["style"] or ""
        for _, attributes in Tags(html).tags
        if "background" in (attributes.get("style") or "")
    ]
    assert len(styles) == 3
    for style in styles:
        ink = re.search(r"(?:^|; )color: var\([^,]+, (#\w+)", style)
        paper = re.search(r"background: var\([^,]+, (#\w+)", style)
        assert ink is not None
        assert paper is not None
        assert contrast(ink[1], paper[1]) >= 7


def test_each_outcome_is_told_in_words_and_not_by_colour_alone() -> None:
    headings = {re.search("<strong>(.*?)</strong>", result(outcome)._repr_html_())[1] for outcome in OUTCOMES}  # type: ignore[index]
    assert (len(headings), len(OUTCOMES)) == (6, 7)  # a misconception and what has no name are both "Not yet"


@pytest.mark.parametrize("points", [-0.01, 3.0, 2.999, 4, float("nan"), float("inf"), -1])
def test_points_outside_the_range_are_refused(points: float) -> None:
    """nbgrader 0.9.6 takes a negative number, and anything that is no number, for full marks."""
    with pytest.raises(ValueError, match="the range is 0 to 2.995"):
        CheckResult("03-free", "t", "wrong", points, 3, "m")


@pytest.mark.parametrize(("points", "text"), [(0, "0.0"), (1, "1.0"), (1.25, "1.25"), (True, "1.0")])
def test_the_repr_is_a_number_for_any_kind_of_number(points: float, text: str) -> None:
    assert repr(CheckResult("03-free", "t", "wrong", points, 3, "m")) == text


def test_points_are_singular_and_plural() -> None:
    assert "· 1 of 1 point</div>" in CheckResult("00-first-check", "t", "passed", 1.0, 1, "m")._repr_html_()
    assert "· 1.2 of 3 points</div>" in result("wrong")._repr_html_()


def test_a_sentence_is_one_line() -> None:
    assert result("wrong", message="one\n  two\r\nthree").sentence == "03-free: wrong — one two three"


def test_a_check_prints_its_sentence_and_nothing_else(capfd: pytest.CaptureFixture[str]) -> None:
    shown = check("03-allocate", allocator())
    assert capfd.readouterr() == (shown.sentence + "\n", "")
    assert shown.sentence == "03-allocate: passed — 7 properties held on 63 histories."

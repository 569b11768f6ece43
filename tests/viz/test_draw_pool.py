"""The block pool's picture: its words, its errors, and that what is drawn can be read by everyone.

Blocks here are a learner's own, a class that shares nothing with refimpl's.
"""

import io
import subprocess
import sys
from typing import Any

import matplotlib
import pytest
from looks import LearnersBlock, has_colour, pixels
from PIL import Image

from refimpl.viz import sheet
from refimpl.viz.draw import Picture, pool
from refimpl.viz.pool import snapshot


def everything() -> Picture:
    """A picture with every kind of mark: eight owners, free, shared by 2, 3 and 5, a mismatch."""
    by_two, by_three, by_five = LearnersBlock(40, 2), LearnersBlock(41, 3), LearnersBlock(42, 5)
    tables = {f"request {i}": [LearnersBlock(4 * i + j) for j in range(3)] for i in range(8)}
    for i, table in enumerate(tables.values()):
        table += [by_two] * (i < 2) + [by_three] * (i < 3) + [by_five] * (i < 5)
    tables["request 0"].append(LearnersBlock(50, 7))
    return pool(64, tables, title="Every mark there is")


# What describe() says


def test_an_empty_pool_is_free_throughout():
    assert pool(4, {}).describe() == "GPU pool: 4 blocks, 4 free\nFree: 0 to 3"


def test_each_sequence_is_described_in_table_order_and_gaps_are_free():
    tables = {"A": [LearnersBlock(5), LearnersBlock(1)], "B": [LearnersBlock(3)], "C": []}
    assert pool(7, tables).describe().splitlines() == [
        "GPU pool: 7 blocks, 4 free",
        "A holds 2 blocks: 5, 1",
        "B holds 1 block: 3",
        "C holds 0 blocks: none",
        "Free: 0, 2, 4, 6",
    ]


def test_a_full_pool_has_no_free_block():
    lines = pool(1, {"A": [LearnersBlock(0)]}).describe().splitlines()
    assert lines[0] == "GPU pool: 1 block, 0 free"
    assert lines[-1] == "Free: none"


def test_a_shared_block_is_said_once_with_all_its_owners():
    shared = LearnersBlock(2, ref_count=3)
    text = pool(4, {"A": [shared], "B": [shared], "C": [shared]}).describe()
    assert "Shared: block 2 by A, B and C (ref_count 3)" in text
    assert "Mismatch" not in text


@pytest.mark.parametrize(
    ("ref_count", "num_tables", "expected"),
    [
        (2, 1, "Mismatch: block 3 has ref_count 2, and 1 table holds it (A)"),
        (0, 1, "Mismatch: block 3 has ref_count 0, and 1 table holds it (A)"),
        (1, 2, "Mismatch: block 3 has ref_count 1, and 2 tables hold it (A and B)"),
        (None, 1, "Mismatch: block 3 has ref_count None, and 1 table holds it (A)"),
    ],
)
def test_a_ref_count_that_is_not_the_number_of_tables_is_said(ref_count, num_tables, expected):
    block = LearnersBlock(3, ref_count)
    text = pool(4, {name: [block] for name in "AB"[:num_tables]}).describe()
    assert expected in text.splitlines()
    assert "Shared" not in text


def test_one_number_on_two_objects_is_a_mismatch_even_when_each_count_looks_right():
    text = pool(4, {"A": [LearnersBlock(3, 2)], "B": [LearnersBlock(3, 2)]}).describe()
    assert "Mismatch: block 3 has ref_count 2 and 2 on 2 different objects, and 2 tables hold it (A and B)" in text


def test_a_block_twice_in_one_table_is_drawn_and_said():
    block = LearnersBlock(0)
    text = pool(2, {"A": [block, block]}).describe()
    assert "A holds 1 block: 0, 0" in text
    assert "Repeated: A lists block 0 2 times" in text
    assert "Mismatch" not in text


def test_longer_names_get_letters():
    block = LearnersBlock(0, 2)
    text = pool(2, {"parent": [block], 7: [block]}).describe()
    assert "A (parent) holds 1 block: 0\nB (7) holds 1 block: 0" in text
    assert "block 0 by A and B" in text


def test_a_name_without_letters_gets_one():
    assert "A () holds 0 blocks: none" in pool(1, {"": []}).describe()


def test_letters_go_on_after_z():
    text = pool(1, {f"seq {i}": [] for i in range(28)}).describe()
    assert "Z (seq 25)" in text
    assert "AA (seq 26)" in text
    assert "AB (seq 27)" in text


def test_title_and_device_are_said():
    assert pool(2, {}, device="CPU", title="After swap-out").describe().splitlines()[:2] == [
        "After swap-out",
        "CPU pool: 2 blocks, 2 free",
    ]


def test_a_picture_does_not_change_with_the_objects_behind_it():
    block, tables = LearnersBlock(0), {"A": []}
    tables["A"].append(block)
    picture = pool(2, tables)
    words, image = picture.describe(), picture.png()
    block.ref_count = 5
    tables["A"].clear()
    assert (picture.describe(), picture.png()) == (words, image)


def test_free_blocks_that_keep_their_content_are_said_and_stay_free():
    text = pool(6, {"A": [LearnersBlock(5)]}, cached=[3, LearnersBlock(1, 0), 2]).describe()
    assert text.splitlines() == [
        "GPU pool: 6 blocks, 5 free, 3 of them cached",
        "A holds 1 block: 5",
        "Free: 0 to 4",
        "Free, content kept (cached): 1 to 3",
    ]


def test_a_block_that_is_given_as_cached_and_is_held_is_a_mismatch():
    picture = pool(6, {"A": [LearnersBlock(5)]}, cached=[5])
    assert "Mismatch: block 5 is given as cached and free, and 1 table holds it (A)" in picture.describe()
    assert "content kept" not in picture.describe()
    assert has_colour(pixels(picture), sheet.ALARM)


# Errors


@pytest.mark.parametrize("number", [4, -1, None])
def test_a_block_number_outside_the_pool_is_refused_with_number_table_and_limit(number):
    with pytest.raises(ValueError, match=f"block number {number} in table 'B'.*0 to 3"):
        pool(4, {"A": [LearnersBlock(0)], "B": [LearnersBlock(number)]})


def test_a_cached_block_outside_the_pool_is_refused():
    with pytest.raises(ValueError, match="block number 4 in cached.*0 to 3"):
        pool(4, {}, cached=[4])


@pytest.mark.parametrize(
    ("num_blocks", "columns", "message"),
    [
        (0, 16, "num_blocks is 0; a picture can show 1 to 2048"),
        (2049, 16, "num_blocks is 2049; a picture can show 1 to 2048"),
        (8, 3, "columns is 3; a picture can show 4 to 64"),
        (8, 65, "columns is 65; a picture can show 4 to 64"),
    ],
)
def test_more_than_a_page_can_show_is_refused(num_blocks, columns, message):
    with pytest.raises(ValueError, match=message):
        pool(num_blocks, {}, columns=columns)


def test_the_tallest_picture_can_be_drawn():
    assert pool(2048, {}, columns=4).png()


# What a notebook gets


def test_the_image_carries_its_size_and_its_words():
    picture = pool(4, {"A": [LearnersBlock(1)]})
    data, metadata = picture._repr_mimebundle_()
    image = Image.open(io.BytesIO(data["image/png"]))
    about = metadata["image/png"]
    assert data["text/plain"] == about["alt"] == repr(picture) == picture.describe()
    assert image.size == (2 * about["width"], 2 * about["height"])


def test_a_notebook_shows_the_image_then_the_words_escaped(monkeypatch):
    shown: list[dict[str, Any]] = []
    monkeypatch.setattr("IPython.display.display", lambda data, **_: shown.append(data))
    pool(4, {"<i>": [LearnersBlock(1)]})._ipython_display_()
    assert list(shown[0]) == ["image/png", "text/plain"]
    assert (
        "<pre>GPU pool: 4 blocks, 3 free\nA (&lt;i&gt;) holds 1 block: 1\nFree: 0, 2 to 3</pre>"
        in shown[1]["text/html"]
    )


def test_the_image_is_the_same_every_time_whatever_the_reader_set_in_matplotlib():
    tables = {"A": [LearnersBlock(1, 2)], "B": [LearnersBlock(2)]}
    first = pool(4, tables).png()
    with matplotlib.rc_context(
        {"path.sketch": (1, 100, 2), "font.family": "serif", "hatch.linewidth": 4, "patch.antialiased": False}
    ):
        assert pool(4, tables).png() == first


def test_drawing_leaves_pyplot_alone_and_importing_refimpl_leaves_matplotlib_alone():
    program = """
import sys
import refimpl, refimpl.viz
assert "matplotlib" not in sys.modules, "import refimpl loads matplotlib"
from refimpl.viz.draw import pool
pool(4, {}).png()
assert "matplotlib.pyplot" not in sys.modules, "drawing loads pyplot"
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


# What is drawn


def test_a_ring_is_drawn_only_where_a_count_is_wrong():
    assert not has_colour(pixels(pool(4, {"A": [LearnersBlock(1, 1)]})), sheet.ALARM)
    assert has_colour(pixels(pool(4, {"A": [LearnersBlock(1, 2)]})), sheet.ALARM)


def test_free_blocks_are_plain():
    assert not any(has_colour(pixels(pool(16, {})), colour) for colour in sheet.COLOURS)


def test_a_free_block_that_keeps_its_content_does_not_look_like_another_free_block():
    kept, other = (pixels(pool(64, {}, cached=cached))[:400] for cached in ([2], [40]))
    assert (kept != other).any(), "the grid above the legend is the same"


def test_each_owner_of_a_shared_block_is_drawn_in_it():
    block = LearnersBlock(0, 2)
    image = pixels(pool(1, {"A": [block], "B": [block]}))
    above_the_legend = image[: len(image) * 2 // 3]
    for colour in sheet.COLOURS[:2]:
        assert has_colour(above_the_legend, colour), f"{colour} is not in the grid"


def test_no_two_of_fifty_six_owners_look_alike():
    looks = {(sheet.COLOURS[i % len(sheet.COLOURS)], sheet.HATCHES[i % len(sheet.HATCHES)]) for i in range(56)}
    assert len(looks) == 56


def test_a_picture_of_256_blocks_takes_few_drawing_calls():
    tables = {f"seq {i}": [LearnersBlock(25 * i + j) for j in range(25)] for i in range(10)}
    artists = pool(256, tables)._sheet.figure().artists
    assert len(artists) < 60


def test_an_owner_keeps_its_colour_and_hatch_whoever_else_is_drawn() -> None:
    crowd, alone = snapshot(4, {"A": [], "B": [], "C": []}, "GPU"), snapshot(4, {"C": []}, "GPU")
    assert alone.owners[0].style == crowd.owners[2].style != crowd.owners[0].style


def test_a_block_says_where_in_its_table_it_stands() -> None:
    (owner,) = snapshot(16, {"A": [LearnersBlock(7), LearnersBlock(6)]}, "GPU").owners
    assert (owner.place(7), owner.place(6)) == ("A₀", "A₁")

"""The step player: what it shows of each step, how it is driven, and what it costs."""

import base64
import re
import time
from types import SimpleNamespace

import ipywidgets
import matplotlib.pyplot as plt
import pytest
from recorded import run

from refimpl.simulation.recording import Recorder, Step
from refimpl.viz import draw, widgets_base
from refimpl.viz.draw import Picture
from refimpl.viz.widgets import StepPlayer
from refimpl.viz.widgets_base import MOST_DRAWN, MOST_ROWS, PictureView, image_html, table_html
from refimpl.viz.widgets_player import letters_of

SLOW = 0.5  # seconds a redraw may take where others run beside it; alone it takes less than a tenth


@pytest.fixture(scope="module")
def swapping() -> list[Step]:
    """Two requests in a pool that holds one and a half of them."""
    return run(6, 6, {"a": 8, "b": 8}, num_steps=14)


def place_of(steps: list[Step], happened: str) -> int:
    return next(step.number for step in steps if getattr(step, happened))


def alt(player: StepPlayer) -> str:
    return re.search(r'alt="([^"]*)"', player._picture.widget.value)[1]


def test_each_step_shows_memory_tables_queues_and_decisions_of_that_step(swapping):
    player = StepPlayer(swapping)
    for step in swapping:
        player.go(step.number)
        assert f"Step {step.number} of {len(swapping)}" in player._heading.value
        assert f"GPU pool: 6 blocks, {step.gpu.num_free} free" in alt(player)
        assert f"CPU pool: 6 blocks, {step.cpu.num_free} free" in alt(player)
        for name, table in step.gpu.tables.items():
            numbers = " → ".join(str(block.block_number) for block in table)
            assert (
                f"<td>{name}</td><td>GPU</td><td>{step.num_tokens[name]}</td><td>{numbers}</td>" in player._facts.value
            )
        for line in step.decisions:
            assert line in player._facts.value


def test_a_swap_is_told_in_words_with_the_blocks_that_move(swapping):
    place = place_of(swapping, "swapped_out")
    ((gpu, cpu), *_) = swapping[place - 1].blocks_to_swap_out
    text = StepPlayer(swapping).describe(place)
    assert "Swapped out: b\n" in text
    assert f"GPU to CPU: {gpu} → {cpu}" in text
    assert "Swapped: b\n" in text
    assert "b | CPU | " in text
    assert "Swapped out:" not in StepPlayer(swapping).describe(1)
    assert "GPU to CPU:" not in StepPlayer(swapping).describe(1)


def test_what_is_shown_as_html_is_said_in_the_description(swapping):
    player = StepPlayer(swapping, start=place_of(swapping, "swapped_out"))
    for value in (player._heading.value, player._facts.value):
        for cell in re.findall(r"<(?:div|td|strong)>([^<]+)<", value):
            assert cell in player.describe()
    assert alt(player) in player.describe()
    decisions = "\n".join(player.steps[player.place - 1].decisions)
    assert player.describe().endswith(f"\nDecisions:\n{decisions}")
    assert repr(player) == player.describe()


def test_slider_buttons_and_python_move_to_the_same_step(swapping):
    player = StepPlayer(swapping, start=3)
    player._next.click()
    assert player.place == player._slider.value == 4
    player._back.click()
    player._back.click()
    assert player.place == 2
    player._slider.value = 7
    assert "Step 7 of" in player._heading.value


def test_the_step_buttons_stop_at_both_ends(swapping, monkeypatch):
    """They ask for no step that is none: ipywidgets would print the refusal below the cell."""
    asked = []
    monkeypatch.setattr(StepPlayer, "go", lambda _, place: asked.append(place))
    StepPlayer(swapping)._back.click()
    StepPlayer(swapping, start=len(swapping))._next.click()
    assert asked == [1, len(swapping)]


def test_the_play_button_drives_the_slider_from_the_step_shown_first_to_the_last(swapping, monkeypatch):
    linked = []
    monkeypatch.setattr(ipywidgets, "jslink", lambda *ends: linked.append(ends))
    player = StepPlayer(swapping, start=5)
    assert (player._play.value, player._play.min, player._play.max) == (5, 1, len(swapping))
    assert linked == [((player._play, "value"), (player._slider, "value"))]


def test_what_is_left_in_the_notebook_is_of_the_step_that_is_shown(swapping, monkeypatch):
    place = place_of(swapping, "swapped_out")
    shown = []
    monkeypatch.setattr(widgets_base, "display", lambda data, **more: shown.append((data, more)))
    StepPlayer(swapping, start=place)._ipython_display_()
    (line, _), (picture, about), (words, _) = shown
    assert f"at step {place}. " in line["text/plain"]
    assert picture["image/png"]
    assert about["metadata"]["image/png"]["alt"] in words["text/plain"]
    assert words["text/plain"] == StepPlayer(swapping).describe(place)


def test_steps_recorded_later_are_not_in_a_player_made_before():
    scheduler = SimpleNamespace(waiting=[], running=[], swapped=[], block_manager=None)
    recorder = Recorder(scheduler)
    recorder.steps += run(8, 0, {"a": 4}, num_steps=2)
    player = StepPlayer(recorder)
    recorder.steps += run(8, 0, {"a": 4}, num_steps=1)
    assert len(player.steps) == 2


def test_one_token_is_one_token():
    player = StepPlayer(run(8, 0, {"a": 5}, num_steps=2))
    assert player.describe(1).startswith("Step 1 of 2, at 0 s: prefill, 5 tokens\n")
    assert player.describe(2).startswith("Step 2 of 2, at 0.1 s: decode, 1 token\n")


@pytest.mark.parametrize("place", [0, 15, -1])
def test_a_step_that_is_none_is_refused_and_nothing_changes(swapping, place):
    player = StepPlayer(swapping, start=5)
    for act in (player.go, player.describe, lambda place: StepPlayer(swapping, start=place)):
        with pytest.raises(ValueError, match=f"step {place} is none of the trace's steps 1 to 14"):
            act(place)
    assert player.place == 5


def test_an_empty_trace_is_refused():
    with pytest.raises(ValueError, match="0 steps"):
        StepPlayer([])


def test_F15_twenty_steps_leave_no_figure_open_and_each_shows_one_picture(monkeypatch, capsys):
    """Old plots pile up or none appears."""
    drawn = []
    png = Picture.png
    monkeypatch.setattr(Picture, "png", lambda self, **how: drawn.append(self.describe()) or png(self, **how))
    steps = run(60, 0, {f"r{i}": 3 + i for i in range(4)}, num_steps=21, output_len=99)
    player = StepPlayer(steps)
    figures = plt.get_fignums()
    for step in steps[1:]:
        player._next.click()
        assert player._picture.widget.value.count("<img") == 1
        assert f"60 blocks, {step.gpu.num_free} free" in alt(player)
    assert plt.get_fignums() == figures == []
    assert len(drawn) == len(set(drawn)) <= len(steps)
    player._back.click()
    assert len(drawn) == len(set(drawn)), "drawn a second time on the way back"
    assert capsys.readouterr() == ("", "")


def test_the_latest_pictures_are_remembered_but_not_without_end():
    view = PictureView()
    pictures = [draw.pool(size, {}) for size in range(1, 2 * MOST_DRAWN)]
    for picture in pictures:
        view.show(picture)
    assert list(view._drawn) == [picture.describe() for picture in pictures[-MOST_DRAWN:]]


def test_a_picture_stands_in_the_page_in_its_size_with_its_words_as_text():
    picture = draw.pool(8, {'<b>"bold"</b>': []})
    source = base64.b64encode(picture.png(quick=True)).decode()
    html = image_html(picture)
    assert f'src="data:image/png;base64,{source}"' in html
    assert "&lt;b&gt;&quot;bold&quot;&lt;/b&gt;) holds" in html
    assert f'width="{picture.size[0]}" height="{picture.size[1]}"' in html


def test_a_long_table_is_shown_by_its_head_and_what_is_left():
    rows = [[f"row {number}"] for number in range(MOST_ROWS + 1)]
    assert table_html(["Head"], rows).count("<td>") == MOST_ROWS
    assert table_html(["Head"], rows).endswith("<p>and 1 more</p>")
    assert table_html(["Head"], rows[1:]).endswith("</table>")


def test_a_sentence_in_place_of_a_picture_is_text():
    view = PictureView()
    view.show("TypeError: <class 'list'>")
    assert "TypeError: &lt;class" in view.widget.value


@pytest.mark.alone
def test_a_step_of_256_blocks_is_drawn_in_time():
    """Recorded beside the claim in `tests/README.md`; the bound here is for a machine that is busy."""
    steps = run(256, 256, {f"request-{i}": 40 for i in range(20)}, num_steps=12, output_len=40)
    player = StepPlayer(steps)
    taken = []
    for place in range(2, 13):
        start = time.perf_counter()
        player.go(place)
        taken.append(time.perf_counter() - start)
    assert sorted(taken)[len(taken) // 2] < SLOW, taken


def test_a_pool_that_no_picture_can_show_is_told_in_words():
    player = StepPlayer(run(3000, 0, {"a": 8}, num_steps=1))
    assert "There is no picture of this: ValueError" in player._picture.widget.value
    assert "3000" in player._picture.widget.value
    assert "There is no picture of this" in player.describe()


def test_a_long_queue_is_shown_by_its_head_and_its_length():
    steps = run(4, 0, {f"r{i}": 8 for i in range(30)}, num_steps=1)
    assert "Waiting: r2, r3, r4, r5, r6, r7, r8, r9 … (28 in all)\n" in StepPlayer(steps).describe()


def test_names_are_shown_as_text_not_as_html():
    player = StepPlayer(run(8, 0, {"<b>bold</b>": 4}, num_steps=1))
    assert "&lt;b&gt;bold" in player._facts.value
    assert "<b>bold" not in player._facts.value + player._picture.widget.value


def test_letters_stay_with_a_sequence_from_step_to_step():
    steps = run(9, 12, {"chat-0": 9, "chat-1": 6, "chat-2": 7, "chat-3": 5}, num_steps=30, output_len=9)
    letters = letters_of(steps)
    assert letters == {"chat-0": "A", "chat-1": "B", "chat-2": "C", "chat-3": "D"}
    assert "A (chat-0) | GPU" in StepPlayer(steps).describe(1)
    later = [step.number for step in steps if "chat-3" in step.gpu.tables and "chat-0" not in step.gpu.tables]
    assert "D (chat-3) | GPU" in StepPlayer(steps).describe(later[0])
    assert "D holds" in StepPlayer(steps).describe(later[0])


def test_the_first_of_several_sequences_keeps_the_letter_of_its_prompt():
    letters = letters_of(run(40, 0, {"chat": 9}, num_steps=3, n=3))
    assert letters == {"chat": "A", "chat.0": "A", "chat.1": "B", "chat.2": "C"}


def test_a_sequence_without_a_table_that_has_not_ended_keeps_its_letter():
    """A preempted one that is to be recomputed."""
    tables = [("chat-0", "chat-1"), ("chat-1", "chat-2"), ("chat-0", "chat-2")]
    steps = [
        SimpleNamespace(
            gpu=SimpleNamespace(tables=dict.fromkeys(names)),
            cpu=SimpleNamespace(tables={}),
            num_tokens={"chat-0": 4, "chat-2": 4},
        )
        for names in tables
    ]
    assert letters_of(steps) == {"chat-0": "A", "chat-1": "B", "chat-2": "C"}


def test_a_letter_is_given_again_when_its_sequence_has_ended():
    names = {f"request-{i}": 4 for i in range(60)}
    letters = letters_of(run(12, 0, names, num_steps=120, output_len=3))
    assert letters.keys() == names.keys()
    assert set(letters.values()) == set("ABCDEFGHIJKLMNOPQRSTUVWXYZ")


def test_nobody_has_a_letter_when_there_are_too_few_and_one_letter_names_stay():
    assert letters_of(run(80, 0, {f"request-{i}": 4 for i in range(27)}, num_steps=1)) == {}
    assert letters_of(run(80, 0, {"a": 4, "b": 4}, num_steps=1)) == {}

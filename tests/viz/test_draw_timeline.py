"""The picture of a run: queues, free blocks and the watermark, and what happened when."""

from types import SimpleNamespace

import pytest
from looks import has_colour, pixels
from test_every_picture import some_steps, step

from refimpl.viz import sheet
from refimpl.viz import timeline as module
from refimpl.viz.draw import timeline


def lines(*steps: SimpleNamespace) -> list[str]:
    return timeline(steps).describe().splitlines()


def test_a_few_steps_are_told_one_by_one():
    steps = [
        step(1, kind="prefill", scheduled=("a", "b"), running=("a", "b"), waiting=("c",), num_batched_tokens=9),
        step(2, scheduled=("a",), waiting=("b", "c"), recomputed=("b",)),
    ]
    assert lines(*steps) == [
        "2 steps (1 to 2): 1 prefill, 1 decode, 0 idle",
        "waiting requests: first 1, most 2 (step 2), last 2",
        "running requests: first 2, most 2 (step 1), last 1",
        "swapped requests: 0 throughout",
        "free GPU blocks (of 8): first 7, fewest 6 (step 2), last 6; watermark 1",
        "free CPU blocks (of 4): 4 throughout",
        "recomputed: step 2: b",
        "Step 1: prefill of a, b (9 tokens); waiting 1, running 2, swapped 0; 7 GPU blocks free",
        "Step 2: decode of a (1 token); waiting 2, running 1, swapped 0; 6 GPU blocks free",
    ]


@pytest.mark.parametrize(
    ("attribute", "event", "said"),
    [
        ("recomputed", "a", "recomputed: step 1: a"),
        ("swapped_out", "a", "swapped out: step 1: a"),
        ("swapped_in", "a", "swapped in: step 1: a"),
        ("ignored", "a", "ignored: step 1: a"),
        ("aborted", "a", "aborted: step 1: a"),
        ("blocks_to_copy", (3, 5), "blocks copied: step 1: 3→5"),
    ],
)
def test_what_happened_is_said_and_drawn(attribute, event, said):
    assert said in lines(step(1, **{attribute: (event,)}))
    assert timeline([step(1, **{attribute: (event,)})]).size[1] > timeline([step(1)]).size[1]


def test_many_events_of_a_kind_are_counted():
    steps = [step(i + 1, swapped_out=("a", "b")) for i in range(13)]
    assert "swapped out: 26 in steps 1 to 13" in lines(*steps)


def test_steps_below_the_watermark_are_said():
    (line,) = [line for line in lines(*[step(i + 1) for i in range(8)]) if line.startswith("free GPU")]
    assert line == "free GPU blocks (of 8): first 7, fewest 0 (step 8), last 0; watermark 1, below it in step 8"


def test_the_watermark_is_drawn():
    assert timeline([step(1)]).png() != timeline([step(1, watermark_blocks=3)]).png()


def test_a_device_without_blocks_has_no_lane():
    without = step(1)
    without.cpu.num_blocks = without.cpu.num_free = 0
    assert "free CPU blocks" not in timeline([without]).describe()


def test_kinds_of_steps_do_not_look_alike():
    prefill, decode = sheet.COLOURS[:2]
    for kind, shown in (("prefill", [prefill]), ("decode", [decode]), ("idle", [])):
        image = pixels(timeline([step(number, kind=kind) for number in range(1, 40)]))
        assert [colour for colour in (prefill, decode) if has_colour(image, colour)] == shown


def test_five_hundred_steps_are_told_by_their_turning_points_and_no_wider_than_thirty():
    many = timeline(some_steps(500))
    assert "Step 1:" not in many.describe()
    assert many.size[0] <= timeline(some_steps(30)).size[0]
    assert pixels(many).shape[0] == 2 * many.size[1]


def test_steps_are_the_same_from_a_recorder():
    steps = some_steps(5)
    assert timeline(SimpleNamespace(steps=steps)).describe() == timeline(steps).describe()


@pytest.mark.parametrize("count", [0, module.STEP_LIMITS[1] + 1])
def test_no_step_and_more_steps_than_pixels_are_refused(count):
    with pytest.raises(ValueError, match=rf"the number of steps is {count}; .* 1 to 800: pass a part, such as steps"):
        timeline([step(1)] * count)


def test_the_longest_run_can_be_drawn():
    assert timeline(some_steps(800)).png(quick=True)

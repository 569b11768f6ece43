"""The picture of two things of a kind: every difference is found, ringed and said, and nothing else is."""

from types import SimpleNamespace

import pytest
from looks import LearnersBlock, has_colour, pixels

from refimpl import BlockSpaceManager, Sequence, SequenceGroup
from refimpl.viz import sheet
from refimpl.viz.draw import compare


def num_rings(picture: object) -> int:
    """Rings around what differs; the legend, which has one more, is there with the first of them."""
    layers = picture._sheet._layers.items()
    return max(0, sum(len(shapes) for style, shapes in layers if dict(style).get("edgecolor") == sheet.ALARM) - 1)


def test_equal_lists_have_no_ring():
    picture = compare([7, 5, 3], (7, 5, 3))
    assert picture.describe() == "No difference\nyours: 7, 5, 3\ntarget: 7, 5, 3"
    assert num_rings(picture) == 0
    assert not has_colour(pixels(picture), sheet.ALARM)


def test_positions_that_differ_and_the_longer_lists_rest():
    picture = compare([7, 5], [7, 6, 3], title="Slots")
    assert picture.describe().splitlines() == [
        "Slots",
        "2 differences",
        "yours: 7, 5",
        "target: 7, 6, 3",
        "At 1: yours 5, target 6",
        "At 2: yours –, target 3",
    ]
    assert num_rings(picture) == 2
    assert has_colour(pixels(picture), sheet.ALARM)


def test_blocks_are_compared_by_number_and_tensors_by_value():
    scalar = SimpleNamespace(item=lambda: 2.5)
    assert "No difference" in compare([LearnersBlock(3)], [3]).describe()
    assert "At 0: yours 2.5, target 2" in compare([scalar], [2.0]).describe()


def test_digits_enough_to_tell_two_numbers_apart():
    assert "At 0: yours 0.30000001, target 0.3" in compare([0.30000001], [0.3]).describe()


def test_within_the_tolerance_numbers_are_the_same():
    assert "1 difference" in compare([1.0, 2.0], [1.25, 2.5], tolerance=0.25).describe()


def test_tables_are_compared_name_by_name():
    picture = compare({"A": [7], "B": [1, 2], "D": []}, {"A": [7], "B": [1, 3], "C": [4]})
    assert picture.describe().splitlines() == [
        "3 differences",
        "A: yours: 7",
        "A: target: 7",
        "B: yours: 1, 2",
        "B: target: 1, 3",
        "C: yours: missing",
        "C: target: 4",
        "D: yours: empty",
        "D: target: missing",
        "B at 1: yours 2, target 3",
        "C at 0: yours –, target 4",
    ]


def test_a_table_that_is_empty_instead_of_missing_is_ringed():
    assert num_rings(compare({"D": []}, {})) == 1


def test_pools_are_compared_block_by_block():
    yours = {"parent": [LearnersBlock(1)], "child": [LearnersBlock(0, 2)]}
    target = {"parent": [LearnersBlock(1)], "child": [LearnersBlock(0), LearnersBlock(3)]}
    text = compare(yours, target, num_blocks=4, device="CPU").describe()
    assert text.splitlines()[0] == "2 differences"
    assert text.splitlines()[-2:] == [
        "CPU block 0: yours B₀ (ref_count 2), target B₀ (ref_count 1)",
        "CPU block 3: yours free, target B₁ (ref_count 1)",
    ]
    assert "yours: A (parent) holds 1 block: 1" in text


def manager(num_tokens: int, num_gpu_blocks: int = 6) -> BlockSpaceManager:
    found = BlockSpaceManager(block_size=4, num_gpu_blocks=num_gpu_blocks, num_cpu_blocks=2)
    found.allocate(SequenceGroup("a", [Sequence(0, [1] * num_tokens, 4)]))
    return found


def test_managers_are_compared_on_both_devices():
    assert num_rings(compare(manager(5), manager(5))) == 0
    picture = compare(manager(5), manager(9), names={0: "A"})
    assert picture.describe().splitlines()[-1] == "GPU block 3: yours free, target A₂ (ref_count 1)"
    assert num_rings(picture) == 2, "block 3 on both sides"


def test_managers_of_different_sizes_say_so():
    text = compare(manager(4, 6), manager(4, 5)).describe()
    assert "GPU pool: yours has 6 blocks, target 5" in text


def test_two_of_different_kinds_are_refused():
    with pytest.raises(TypeError, match="yours is a sequence, the target a dict; compare two of a kind"):
        compare([1], {"A": [1]})
    with pytest.raises(TypeError, match="cannot compare int: pass a sequence"):
        compare(1, [1])


def test_more_than_a_page_can_show_is_refused_and_the_largest_is_drawn():
    with pytest.raises(ValueError, match="the number of values in a row is 257; a picture can show 0 to 256"):
        compare([1] * 257, [1])
    with pytest.raises(ValueError, match="the number of rows is 65; a picture can show 0 to 64"):
        compare({i: [] for i in range(65)}, {})
    with pytest.raises(ValueError, match="the GPU's number of blocks is 257; a picture can show 0 to 256"):
        compare({}, {}, num_blocks=257)
    assert compare({}, {"A": [LearnersBlock(i) for i in range(256)]}, num_blocks=256).png(quick=True)

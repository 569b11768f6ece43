"""From a position to block, offset and slot, and what last blocks waste, with values worked out by hand."""

import pytest

from refimpl import Device, PhysicalTokenBlock, internal_fragmentation, locate, slots


def table(*numbers, block_size=16):
    return [PhysicalTokenBlock(Device.GPU, number, block_size) for number in numbers]


@pytest.mark.parametrize(
    ("position", "number", "offset"),
    [(0, 7, 0), (15, 7, 15), (16, 9, 0), (20, 9, 4), (31, 9, 15), (32, 5, 0), (34, 5, 2), (47, 5, 15)],
)
def test_a_position_lies_in_the_block_that_the_table_names(position, number, offset):
    """A06, D13."""
    block, there = locate(table(7, 9, 5), position, 16)
    assert (block.block_number, there) == (number, offset)


def test_the_block_itself_is_located_and_the_table_left_alone():
    blocks = table(7, 9, 5)
    kept = list(blocks)
    assert locate(blocks, 20, 16)[0] is blocks[1]
    assert blocks == kept


@pytest.mark.parametrize(("position", "number"), [(0, 2), (1, 0), (2, 1)])
def test_a_block_of_one_token_has_one_offset(position, number):
    """A17."""
    block, offset = locate(table(2, 0, 1, block_size=1), position, 1)
    assert (block.block_number, offset) == (number, 0)


@pytest.mark.parametrize(
    ("numbers", "position", "said"),
    [
        ((7, 9, 5), 48, "position 48 has no block: the table's 3 hold 48 tokens"),
        ((7, 9, 5), 64, "position 64 has no block: the table's 3 hold 48 tokens"),
        ((7, 9, 5), -1, "position -1 has no block: the table's 3 hold 48 tokens"),
        ((7, 9, 5), -16, "position -16 has no block: the table's 3 hold 48 tokens"),
        ((), 0, "position 0 has no block: the table's 0 hold 0 tokens"),
    ],
)
def test_a_position_without_a_block_is_refused(numbers, position, said):
    with pytest.raises(ValueError, match=said):
        locate(table(*numbers), position, 16)
    with pytest.raises(ValueError, match=said):
        slots(table(*numbers), [position], 16)


def test_slots_stand_in_the_order_of_the_positions():
    assert slots(table(7, 9, 5), [15, 16, 34], 16) == [127, 144, 82]
    assert slots(table(7, 9, 5), [34, 20, 20, 0], 16) == [82, 148, 148, 112]
    assert slots(table(7, 9, 5), [], 16) == []


def test_slots_of_a_whole_text_go_block_by_block():
    blocks = table(3, 0, 1, block_size=4)
    assert slots(blocks, range(10), 4) == [12, 13, 14, 15, 0, 1, 2, 3, 4, 5]
    assert slots(blocks, iter([9, 4]), 4) == [5, 0]


def test_a_slot_far_up_in_memory_is_exact():
    """D11."""
    assert slots(table(4740), [9], 16) == [75849]


def test_one_position_without_a_block_is_enough_to_refuse():
    with pytest.raises(ValueError, match="position 48 has no block"):
        slots(table(7, 9, 5), [20, 48, 0], 16)


@pytest.mark.parametrize(
    ("seq_lens", "block_size", "wasted"),
    [
        ([35], 16, 13),
        ([32], 16, 0),
        ([0], 16, 0),
        ([], 16, 0),
        ([1], 16, 15),
        ([35, 32, 0, 20], 16, 25),
        ([35, 20], 1, 0),
        ([35], 128, 93),
    ],
)
def test_only_the_empty_ends_of_last_blocks_are_wasted(seq_lens, block_size, wasted):
    assert internal_fragmentation(seq_lens, block_size) == wasted


def test_lengths_may_be_such_as_can_be_read_once():
    assert internal_fragmentation((seq_len for seq_len in (35, 20)), 16) == 25


@pytest.mark.parametrize(
    ("seq_lens", "block_size", "said"), [([35, -1], 16, "num_tokens is -1"), ([35], 0, "block_size is 0")]
)
def test_waste_of_what_cannot_be_is_refused(seq_lens, block_size, said):
    with pytest.raises(ValueError, match=said):
        internal_fragmentation(seq_lens, block_size)

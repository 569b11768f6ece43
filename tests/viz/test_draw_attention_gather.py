"""The picture of what a query reads: slots, their order, and what is not read."""

import pytest
from looks import LearnersBlock

from refimpl.viz.draw import attention_gather


def test_slots_are_said_in_the_order_of_reading():
    assert attention_gather([7, 2, 5], 35, 16).describe().splitlines() == [
        "A query over 35 tokens reads 35 slots in 3 blocks of 16",
        "1st read: block 7, slots 112 to 127, for positions 0 to 15",
        "2nd read: block 2, slots 32 to 47, for positions 16 to 31",
        "3rd read: block 5, slots 80 to 82, for positions 32 to 34",
        "Unused: slots 83 to 95 of block 5",
    ]


def test_a_full_last_block_has_no_unused_slot_and_one_slot_is_said_in_the_singular():
    assert "Unused" not in attention_gather([1], 4, 4).describe()
    assert attention_gather([1], 3, 4).describe().splitlines()[-1] == "Unused: slot 7 of block 1"


def test_a_block_beyond_the_context_is_not_read():
    text = attention_gather([LearnersBlock(1), LearnersBlock(0)], 4, 4).describe()
    assert "in 1 block of 4" in text
    assert "Unused: slots 0 to 3 of block 0" in text


def test_a_block_that_is_listed_twice_is_said():
    assert "Repeated: the table lists block 3 2 times" in attention_gather([3, 3], 8, 4).describe()


def test_what_is_read_and_the_order_change_the_picture():
    pictures = [attention_gather(table, n, 4).png() for table, n in (([0, 1], 7), ([0, 1], 6), ([1, 0], 7))]
    assert len(set(pictures)) == 3


@pytest.mark.parametrize(
    ("table", "context_len", "block_size", "message"),
    [
        ([1, 2], 9, 4, "context_len is 9; the table's 2 blocks of 4 hold 1 to 8 tokens"),
        ([1], 0, 4, "context_len is 0; the table's 1 block of 4 hold 1 to 4 tokens"),
        ([], 1, 4, "the number of blocks is 0; a picture can show 1 to 32"),
        (range(33), 1, 4, "the number of blocks is 33; a picture can show 1 to 32: pass a shorter table"),
        ([1], 1, 33, "block_size is 33; a picture can show 1 to 32"),
        ([-1], 1, 4, "block number -1 in the table: a block number is 0 or more"),
    ],
)
def test_what_cannot_be_drawn_is_refused_with_the_number_and_the_limit(table, context_len, block_size, message):
    with pytest.raises(ValueError, match=message):
        attention_gather(table, context_len, block_size)


def test_the_largest_context_can_be_drawn():
    assert attention_gather([100_000 - i for i in range(32)], 1024, 32).png(quick=True)

"""The picture of the step convention: which tokens are known, which have a slot, which are written."""

import pytest
from looks import LearnersBlock

from refimpl.viz.draw import newest_token


def test_each_moment_says_what_is_known_and_what_is_written():
    moments = {
        "prompt": (8, 8, [7, 6]),
        "sampled": (9, 8, [7, 6]),
        "append_slots": (9, 8, [7, 6, 5]),
        "step": (9, 9, [7, 6, 5]),
    }
    assert newest_token(moments, 4, title="One token").describe().splitlines() == [
        "One token",
        "One sequence in blocks of 4 at 4 moments",
        "prompt: 8 tokens known, 8 written; blocks 7 and 6",
        "sampled: 9 tokens known, 8 written; blocks 7 and 6",
        "sampled: no slot for position 8",
        "append_slots: 9 tokens known, 8 written; blocks 7, 6 and 5",
        "append_slots: a slot for position 8, not written yet",
        "step: 9 tokens known, 9 written; blocks 7, 6 and 5",
    ]


def test_several_tokens_may_wait_for_their_slot_or_for_their_step():
    assert newest_token({"late": (7, 2, [1])}, 4).describe().splitlines()[2:] == [
        "late: a slot for positions 2 to 3, not written yet",
        "late: no slot for positions 4 to 6",
    ]


def test_a_learners_blocks_and_a_sequence_without_any_can_be_drawn():
    text = newest_token({"before": (1, 0, []), "after": (1, 0, [LearnersBlock(3)])}, 16).describe()
    assert "before: 1 token known, 0 written; no blocks" in text
    assert "before: no slot for position 0" in text
    assert "after: 1 token known, 0 written; block 3" in text


def test_what_is_written_known_and_mapped_changes_the_picture():
    pictures = [newest_token({"now": now}, 4).png() for now in ((5, 4, [1]), (5, 4, [1, 0]), (5, 5, [1, 0]))]
    assert len(set(pictures)) == 3


@pytest.mark.parametrize(
    ("moments", "block_size", "message"),
    [
        ({"now": (5, 6, [1, 2])}, 4, "6 tokens written of 5 that are known, in 8 slots"),
        ({"now": (5, 5, [1])}, 4, "5 tokens written of 5 that are known, in 4 slots"),
        ({"now": (5, -1, [1])}, 4, "-1 tokens written"),
        ({}, 4, "the number of moments is 0; a picture can show 1 to 12"),
        ({"now": (49, 0, [])}, 4, "the number of positions is 49; a picture can show 0 to 48"),
        ({"now": (1, 0, [])}, 33, "block_size is 33; a picture can show 1 to 32"),
    ],
)
def test_what_cannot_be_drawn_is_refused_with_the_number_and_the_limit(moments, block_size, message):
    with pytest.raises(ValueError, match=message):
        newest_token(moments, block_size)


def test_the_largest_picture_can_be_drawn():
    assert newest_token({f"moment {i}": (48, 47, range(12)) for i in range(12)}, 4).png(quick=True)

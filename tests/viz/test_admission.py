"""The picture of admission: three answers over required and free blocks, asked of whoever decides."""

import pytest
from looks import has_colour, pixels

import refimpl
from refimpl import AllocStatus, BlockSpaceManager, Sequence, SequenceGroup
from refimpl.viz.draw import admission
from refimpl.viz.sheet import COLOURS


def manager(num_gpu_blocks: int = 4, watermark: float = 0.25, caching: bool = False) -> BlockSpaceManager:
    return BlockSpaceManager(16, num_gpu_blocks, 0, watermark, caching)


def rule(required: int, free: int, total: int = 4, kept: int = 1) -> AllocStatus:
    if total - required < kept:
        return AllocStatus.NEVER
    return AllocStatus.OK if free - required >= kept else AllocStatus.LATER


def test_each_column_says_where_its_answers_begin():
    assert admission(manager(), title="Who may come in").describe().splitlines() == [
        "Who may come in",
        "can_allocate over a pool of 4 GPU blocks",
        "1 required: LATER at 0 to 1 free, OK at 2 to 4",
        "2 required: LATER at 0 to 2 free, OK at 3 to 4",
        "3 required: LATER at 0 to 3 free, OK at 4",
        "4 to 6 required: NEVER at 0 to 4 free",
    ]


def test_a_function_is_drawn_as_a_manager_is():
    assert admission(rule, num_gpu_blocks=4).describe() == admission(manager()).describe()
    assert admission(rule, num_gpu_blocks=4).png() == admission(manager()).png()


def test_another_inequality_is_another_picture():
    """A learner's slip shows: one more block asked for, or the watermark forgotten in one of two places."""
    right = admission(rule, num_gpu_blocks=4)
    for slip in (
        lambda required, free: rule(required + 1, free),
        lambda required, free: rule(required, free, kept=0) if free == 4 else rule(required, free),
    ):
        wrong = admission(slip, num_gpu_blocks=4)
        assert wrong.describe() != right.describe()
        assert wrong.png() != right.png()


def test_a_learners_own_manager_is_asked():
    class Greedy(BlockSpaceManager):
        def can_allocate(self, group: SequenceGroup) -> AllocStatus:
            return AllocStatus.OK

    assert "1 to 6 required: OK at 0 to 4 free" in admission(Greedy(16, 4, 0)).describe()


@pytest.mark.parametrize("caching", [False, True])
def test_the_manager_stays_as_it_is_and_need_not_be_empty(caching):
    used = manager(caching=caching)
    seq = Sequence(7, [1, 2, 3], block_size=16)
    used.allocate(SequenceGroup("a", [seq]))
    held = used.block_tables[7][0]
    assert admission(used).describe() == admission(manager(caching=caching)).describe()
    assert used.block_tables == {7: [held]}
    assert held.ref_count == 1
    assert used.get_num_free_gpu_blocks() == 3


def test_a_watermark_of_no_block_lets_the_last_one_go():
    """C04: 0.01 of a small pool is 0 blocks."""
    assert "4 required: LATER at 0 to 3 free, OK at 4" in admission(manager(watermark=0.01)).describe()


def test_marks_are_said_with_their_answer():
    picture = admission(manager(), marks={"A": (2, 3), "B": (2, 2), "C": (5, 0)})
    assert picture.describe().splitlines()[-3:] == [
        "A: 2 required, 3 free: OK",
        "B: 2 required, 2 free: LATER",
        "C: 5 required, 0 free: NEVER",
    ]
    assert picture.png() != admission(manager()).png()
    with pytest.raises(ValueError, match=r"mark A is \(7, 0\); it can be \(1 to 6 required, 0 to 4 free\)"):
        admission(manager(), marks={"A": (7, 0)})
    with pytest.raises(ValueError, match="the number of marks is 9"):
        admission(manager(), marks=dict.fromkeys("ABCDEFGHI", (1, 1)))


@pytest.mark.parametrize("answer", [None, True, "OK", refimpl.Device.GPU])
def test_what_is_no_answer_is_shown_as_such(answer):
    picture = admission(lambda required, free: answer, num_gpu_blocks=2)
    assert picture.describe().splitlines()[1] == "1 to 4 required: no answer at 0 to 2 free"
    assert not has_colour(pixels(picture), COLOURS[2])


def test_pools_of_1_to_32_blocks_are_drawn():
    for num_blocks in (0, 33):
        with pytest.raises(ValueError, match=f"the number of GPU blocks is {num_blocks}; a picture can show 1 to 32"):
            admission(manager(num_blocks))
        with pytest.raises(ValueError, match="the number of GPU blocks"):
            admission(rule, num_gpu_blocks=num_blocks)
    assert admission(manager(1)).png(quick=True)
    assert admission(manager(32)).png(quick=True)

"""The picture of block tables: every link, how far blocks are filled, what is shared and what is copied."""

from types import SimpleNamespace
from typing import NamedTuple

import pytest
from looks import LearnersBlock, has_colour, pixels

from refimpl import BlockSpaceManager, Sequence, SequenceGroup, SequenceStatus
from refimpl.viz import sheet
from refimpl.viz import tables as module
from refimpl.viz.draw import tables


def test_links_of_each_sequence_in_order():
    picture = tables({"A": [LearnersBlock(7), LearnersBlock(5)], "B": [LearnersBlock(2)], "C": []})
    assert picture.describe().splitlines() == [
        "3 sequences: 3 logical blocks on 3 physical blocks",
        "A: 0 → block 7, 1 → block 5",
        "B: 0 → block 2",
        "C: no blocks",
    ]


def test_only_the_partly_filled_block_says_how_far():
    text = tables({"A": [7, 5, 2]}, lengths={"A": 9}, block_size=4).describe()
    assert "A, 9 tokens: 0 → block 7, 1 → block 5, 2 → block 2 (1 of 4)" in text


def test_the_fill_of_a_block_is_drawn():
    pictures = {tables({"A": [7]}, lengths={"A": n}, block_size=4).png() for n in (1, 2, 4)}
    assert len(pictures) == 3


def test_shared_blocks_name_their_owners_and_a_copy_both_ends():
    text = tables({"parent": [7, 5], "child": [7, 3]}, copies=[(5, 3)]).describe().splitlines()
    assert text[-2:] == ["Shared: block 7 by A and B", "Copy: block 5 to block 3"]


def test_a_copy_is_drawn_from_its_source_with_arrows_and_in_rows():
    """Of two copies on the same blocks, with the same legend, each has a picture of its own."""
    for found, sources in (({"A": [7, 5], "B": [7, 3]}, (7, 5)), ({"A": range(20, 60), "B": [3]}, (20, 21))):
        first, second = (tables(found, copies=[(source, 3)]).png() for source in sources)
        assert first != second


def test_a_copys_source_that_nobody_holds_any_more_is_drawn():
    assert tables({"A": [3]}, copies=[(5, 3)]).png()


def test_a_sequence_longer_than_its_table_is_a_mismatch():
    picture = tables({"A": [7]}, lengths={"A": 5}, block_size=4)
    assert "Mismatch: A has 5 tokens, its table has room for 4 tokens" in picture.describe()
    assert has_colour(pixels(picture), sheet.ALARM)


def test_a_manager_with_a_swapped_sequence_and_live_lengths():
    manager = BlockSpaceManager(block_size=4, num_gpu_blocks=6, num_cpu_blocks=3)
    groups = [SequenceGroup(str(i), [Sequence(i, [1] * 5, 4)]) for i in range(2)]
    for one in groups:
        manager.allocate(one)
        one.seqs[0].status = SequenceStatus.RUNNING
    manager.swap_out(groups[1])
    lengths = {one.seqs[0].seq_id: one.seqs[0] for one in groups}
    assert tables(manager, lengths=lengths, names={1: "swapped"}).describe().splitlines() == [
        "2 sequences: 4 logical blocks on 4 physical blocks, 4 tokens each",
        "A (seq 0), 5 tokens: 0 → block 5, 1 → block 4 (1 of 4)",
        "B (swapped), 5 tokens: 0 → CPU block 2, 1 → CPU block 1 (1 of 4)",
    ]


def test_a_recorded_step_brings_its_lengths_and_copies():
    block = LearnersBlock(1)
    step = SimpleNamespace(
        gpu=SimpleNamespace(device="GPU", tables={"a": (block,)}),
        cpu=SimpleNamespace(device="CPU", tables={"b": (block,)}),
        num_tokens={"a": 3, "b": 4},
        blocks_to_copy=((0, 1),),
        block_size=4,
    )
    assert tables(step).describe().splitlines()[1:] == [
        "a, 3 tokens: 0 → block 1 (3 of 4)",
        "b, 4 tokens: 0 → CPU block 1",
        "Copy: block 0 to block 1",
    ]


def test_a_learners_block_may_be_a_tuple():
    class Block(NamedTuple):
        block_number: int
        ref_count: int

    assert "A: 0 → block 7" in tables({"A": [Block(7, 1)]}).describe()


def test_gpu_block_3_and_cpu_block_3_are_not_one_block():
    gpu, cpu = LearnersBlock(3), LearnersBlock(3)
    gpu.device, cpu.device = "GPU", "CPU"
    assert "Shared" not in tables({"A": [gpu], "B": [cpu]}).describe()


def test_arrows_end_where_nobody_could_follow_them():
    assert len(arrows(tables({"A": range(16)}))) == 16
    assert len(arrows(tables({"A": range(17)}))) == 0


def arrows(picture: object) -> list[object]:
    layers = picture._sheet._layers
    return [shape for style, shapes in layers.items() if dict(style).get("linewidth") == 1.1 for shape in shapes]


def test_lengths_without_a_block_size_are_refused():
    with pytest.raises(ValueError, match="lengths need a block_size"):
        tables({"A": [1]}, lengths={"A": 3})


def test_more_than_a_page_can_show_is_refused_and_the_largest_is_drawn():
    with pytest.raises(ValueError, match="the number of sequences is 65; a picture can show 1 to 64"):
        tables({f"s{i}": [] for i in range(65)})
    with pytest.raises(ValueError, match="the number of logical blocks is 513; a picture can show 0 to 512"):
        tables({"A": range(513)})
    assert tables({f"s{i}": range(8) for i in range(64)}).png(quick=True)


def test_what_has_no_tables_is_refused():
    with pytest.raises(TypeError, match="a list has no block_tables; pass a block manager"):
        tables([1, 2])


def test_rows_are_no_wider_than_a_notebook():
    assert tables({"A": range(400)}).size[0] <= 2 * sheet.MARGIN + module.GUTTER + 16 * module.PITCH

"""The picture of a whole manager: both devices, one letter a sequence, and what the manager miscounts."""

from types import SimpleNamespace

import pytest
from looks import LearnersBlock, has_colour, pixels

from refimpl import BlockSpaceManager, Sequence, SequenceGroup, SequenceStatus
from refimpl.simulation.recording import MemoryReader
from refimpl.viz import sheet
from refimpl.viz.draw import memory


def group(seq_id: int, num_tokens: int, num_seqs: int = 1) -> SequenceGroup:
    tokens = list(range(100 * seq_id, 100 * seq_id + num_tokens))
    return SequenceGroup(str(seq_id), [Sequence(seq_id + i, tokens, 4) for i in range(num_seqs)])


def run(manager: BlockSpaceManager, one: SequenceGroup) -> None:
    manager.allocate(one)
    for seq in one.seqs:
        seq.status = SequenceStatus.RUNNING
    manager.mark_blocks_as_computed(one)


def test_a_manager_is_described_device_by_device():
    manager = BlockSpaceManager(block_size=4, num_gpu_blocks=6, num_cpu_blocks=3)
    first, second = group(0, 5), group(1, 4, num_seqs=2)
    run(manager, first)
    run(manager, second)
    manager.swap_out(first)
    assert memory(manager, names={0: "essay"}, title="After the swap-out").describe().splitlines() == [
        "After the swap-out",
        "GPU pool: 6 blocks, 5 free",
        "A (seq 1) holds 1 block: 3",
        "B (seq 2) holds 1 block: 3",
        "Shared: block 3 by A and B (ref_count 2)",
        "Free: 0 to 2, 4 to 5",
        "CPU pool: 3 blocks, 1 free",
        "C (essay) holds 2 blocks: 2, 1",
        "Free: 0",
    ]


def test_a_reader_knows_which_free_blocks_keep_their_content():
    manager = BlockSpaceManager(block_size=4, num_gpu_blocks=6, num_cpu_blocks=0, enable_caching=True)
    reader, one = MemoryReader(manager), group(0, 8)
    run(manager, one)
    memory(reader)
    manager.free(one.seqs[0])
    assert "Free, content kept (cached): 0 to 1" in memory(reader).describe().splitlines()
    assert "cached" not in memory(manager).describe(), "a manager alone does not show its free blocks"


def test_a_lost_block_is_said_and_drawn():
    manager = BlockSpaceManager(block_size=4, num_gpu_blocks=6, num_cpu_blocks=2)
    run(manager, group(0, 8))
    assert not has_colour(pixels(memory(manager)), sheet.ALARM)
    manager.block_tables[0].pop()
    picture = memory(manager)
    assert "Mismatch: the manager counts 4 free GPU blocks, and 5 blocks are in no table" in picture.describe()
    assert has_colour(pixels(picture), sheet.ALARM)


def test_a_recorded_step_is_drawn_with_the_names_it_has():
    def pool(device: str, **tables: tuple[LearnersBlock, ...]) -> SimpleNamespace:
        return SimpleNamespace(device=device, num_blocks=2, num_free=1, tables=tables, cached=())

    step = SimpleNamespace(gpu=pool("GPU", a=(LearnersBlock(1),)), cpu=pool("CPU", b=(LearnersBlock(0),)))
    assert memory(step).describe().splitlines() == [
        "GPU pool: 2 blocks, 1 free",
        "a holds 1 block: 1",
        "Free: 0",
        "CPU pool: 2 blocks, 1 free",
        "b holds 1 block: 0",
        "Free: 1",
    ]
    assert "A (chat) holds 1 block: 1" in memory(step, names={"a": "chat"}).describe()


def test_what_is_no_manager_is_refused_with_what_it_lacks():
    with pytest.raises(TypeError, match="a dict has no block_tables and no get_num_free_gpu_blocks and no get_n"):
        memory({})


@pytest.mark.parametrize(("gpu", "cpu", "device"), [(2049, 0, "GPU"), (4, 2049, "CPU")])
def test_more_blocks_than_a_page_can_show_are_refused(gpu, cpu, device):
    with pytest.raises(ValueError, match=f"the {device}'s number of blocks is 2049; a picture can show 0 to 2048"):
        memory(BlockSpaceManager(4, gpu, cpu))


def test_the_largest_managers_picture_can_be_drawn():
    picture = memory(BlockSpaceManager(4, 2048, 2048))
    assert picture.size[0] < 1500
    assert picture.png(quick=True)

"""Admission, growth, sharing, swapping and release, without prefix caching."""

import pytest

from refimpl import AllocStatus, BlockSpaceManager, SequenceStatus
from tests.core.helpers import admit, append, assert_books_balance, fork, make_group, make_manager, state


def refused(manager, error, said, call, *args):
    """The call raises, says why, and has changed nothing."""
    before = state(manager)
    with pytest.raises(error, match=said):
        call(*args)
    assert state(manager) == before


# Admission.


@pytest.mark.parametrize(("watermark", "blocks", "reserved"), [(0.01, 64, 0), (0.29, 100, 28), (0.5, 7, 3), (0, 9, 0)])
def test_watermark_is_truncated_to_whole_blocks(watermark, blocks, reserved):
    assert BlockSpaceManager(4, blocks, 0, watermark=watermark).watermark_blocks == reserved


@pytest.mark.parametrize(
    ("prompt_blocks", "taken", "status"),
    [
        (6, 0, AllocStatus.OK),
        (7, 0, AllocStatus.NEVER),
        (6, 1, AllocStatus.LATER),
        (5, 1, AllocStatus.OK),
        (7, 8, AllocStatus.NEVER),
    ],
)
def test_can_allocate_at_the_edges_of_a_pool_of_8_with_2_reserved(prompt_blocks, taken, status):
    manager = make_manager(num_gpu_blocks=8, watermark=0.25)
    if taken:
        admit(manager, make_group(4 * taken, seq_ids=(9,)))
    assert manager.can_allocate(make_group(4 * prompt_blocks)) is status


def test_admission_and_allocation_count_the_first_waiting_sequence():
    manager = make_manager(num_gpu_blocks=3)
    group = make_group(9, seq_ids=(0, 1, 2))
    assert manager.can_allocate(group) is AllocStatus.OK
    admit(manager, group)
    assert manager.get_num_free_gpu_blocks() == 0
    assert [block.ref_count for block in manager.block_tables[1]] == [3, 3, 3]
    assert manager.block_tables[0] is not manager.block_tables[1]
    assert_books_balance(manager)


def test_finished_siblings_own_nothing():
    manager = make_manager()
    group = make_group(4, seq_ids=(0, 1))
    group.seqs[0].status = SequenceStatus.FINISHED_STOPPED
    admit(manager, group)
    assert list(manager.block_tables) == [1]
    assert_books_balance(manager)


def test_second_allocation_is_refused_and_leaks_nothing():
    """A14."""
    manager = make_manager(block_size=4, num_gpu_blocks=4)
    group = make_group(2)
    manager.allocate(group)
    refused(manager, ValueError, "sequence 0 has a block table already", manager.allocate, group)
    manager.free(group.seqs[0])
    assert manager.get_num_free_gpu_blocks() == 4


def test_a_sibling_with_a_table_refuses_the_whole_group():
    manager = make_manager()
    admit(manager, make_group(4, seq_ids=(1,)))
    refused(manager, ValueError, "sequence 1", manager.allocate, make_group(4, seq_ids=(0, 1)))


def test_allocation_without_room_or_without_a_waiting_sequence_is_refused():
    manager = make_manager(num_gpu_blocks=2)
    refused(manager, ValueError, "needs 3 blocks, the GPU pool has 2 free of 2", manager.allocate, make_group(9))
    group = make_group(4)
    admit(manager, group)
    refused(manager, ValueError, "no WAITING sequence", manager.allocate, group)
    refused(manager, ValueError, "no WAITING sequence", manager.can_allocate, group)


# Growth.


def test_a_token_that_fits_writes_in_place():
    manager = make_manager()
    (seq,) = admit(manager, make_group(3))
    assert append(manager, seq) == []
    assert len(manager.get_block_table(seq)) == 1


@pytest.mark.parametrize("blocks", [1, 2])
def test_a_token_past_the_boundary_opens_a_block(blocks):
    manager = make_manager()
    (seq,) = admit(manager, make_group(4 * blocks))
    assert append(manager, seq) == []
    assert len(manager.get_block_table(seq)) == blocks + 1


@pytest.mark.parametrize(("num_seqs", "num_free", "answer"), [(1, 0, False), (1, 1, True), (2, 1, False), (2, 2, True)])
def test_can_append_counts_a_block_for_every_running_sequence(num_seqs, num_free, answer):
    manager = make_manager(num_gpu_blocks=1 + num_free)
    group = make_group(2, seq_ids=range(num_seqs))
    admit(manager, group)
    assert manager.can_append_slots(group) is answer


def test_can_append_counts_running_sequences_only():
    """A22."""
    manager = make_manager(block_size=4, num_gpu_blocks=3)
    group = make_group(4)
    (seq,) = admit(manager, group)
    fork(manager, group, seq, 1)
    third = fork(manager, group, seq, 2)
    assert manager.get_num_free_gpu_blocks() == 2
    assert manager.can_append_slots(group) is False
    for status in (SequenceStatus.FINISHED_STOPPED, SequenceStatus.SWAPPED, SequenceStatus.WAITING):
        third.status = status
        assert manager.can_append_slots(group) is True


def test_two_missing_blocks_are_refused():
    """A20."""
    manager = make_manager(block_size=2)
    (seq,) = admit(manager, make_group(2, block_size=2))
    for token_id in (7, 8, 9):
        seq.append_token_id(token_id)
    refused(manager, ValueError, "needs 3 blocks and has 1", manager.append_slots, seq)


def test_growth_without_room_is_refused():
    manager = make_manager(num_gpu_blocks=1)
    group = make_group(4)
    (seq,) = admit(manager, group)
    seq.append_token_id(1)
    refused(manager, ValueError, "Out of memory", manager.append_slots, seq)


def test_copy_without_room_is_refused():
    manager = make_manager(num_gpu_blocks=1)
    group = make_group(3)
    (seq,) = admit(manager, group)
    fork(manager, group, seq, 1)
    seq.append_token_id(1)
    refused(manager, ValueError, "Out of memory", manager.append_slots, seq)


def test_growth_of_an_unknown_or_swapped_sequence_is_refused():
    manager = make_manager()
    group = make_group(3)
    refused(manager, KeyError, "sequence 0 has no block table", manager.append_slots, group.seqs[0])
    (seq,) = admit(manager, group)
    manager.swap_out(group)
    seq.append_token_id(1)
    refused(manager, ValueError, "on the CPU, not on the GPU", manager.append_slots, seq)


def test_an_empty_prompt_grows_from_nothing():
    manager = make_manager()
    (seq,) = admit(manager, make_group(0))
    assert manager.append_slots(seq) == []
    assert append(manager, seq) == []
    assert len(manager.get_block_table(seq)) == 1


# Sharing.


@pytest.mark.parametrize("first", ["parent", "child"])
def test_whoever_appends_first_copies(first):
    """A05."""
    manager = make_manager(block_size=4, num_gpu_blocks=4)
    group = make_group(3)
    (parent,) = admit(manager, group)
    child = fork(manager, group, parent, 1)
    one, other = (parent, child) if first == "parent" else (child, parent)
    shared = manager.get_block_table(one)[0]
    ((source, destination),) = append(manager, one)
    assert (source, manager.get_block_table(one)) == (shared, [destination])
    assert destination != shared
    assert append(manager, other) == []
    assert [table[-1].ref_count for table in manager.block_tables.values()] == [1, 1]
    assert manager.get_num_free_gpu_blocks() == 2


def test_no_copy_at_a_block_boundary():
    """A06."""
    manager = make_manager(block_size=4, num_gpu_blocks=4)
    group = make_group(4)
    (parent,) = admit(manager, group)
    child = fork(manager, group, parent, 1)
    assert append(manager, parent) == append(manager, child) == []
    assert manager.block_tables[0][0] is manager.block_tables[1][0]
    assert manager.block_tables[0][0].ref_count == 2
    assert manager.block_tables[0][1] is not manager.block_tables[1][1]
    assert manager.get_num_free_gpu_blocks() == 1


def test_three_holders_of_a_partial_block():
    """A07."""
    manager = make_manager(block_size=4, num_gpu_blocks=8)
    group = make_group(3)
    (seq,) = admit(manager, group)
    others = [fork(manager, group, seq, seq_id) for seq_id in (1, 2)]
    pairs = [append(manager, holder) for holder in (seq, *others)]
    assert [len(pair) for pair in pairs] == [1, 1, 0]
    assert pairs[0][0][0] == pairs[1][0][0]
    last = [table[-1] for table in manager.block_tables.values()]
    assert len({block.block_number for block in last}) == 3
    assert [block.ref_count for block in last] == [1, 1, 1]
    assert manager.get_num_free_gpu_blocks() == 5


def test_fork_from_an_unknown_parent_gives_no_table_and_onto_a_known_child_is_refused():
    """A09."""
    manager = make_manager(num_gpu_blocks=4)
    group = make_group(4)
    stranger = group.seqs[0].fork(7)
    manager.fork(group.seqs[0], stranger)
    assert manager.block_tables == {}
    (seq,) = admit(manager, group)
    child = fork(manager, group, seq, 1)
    refused(manager, ValueError, "sequence 1 has a block table already", manager.fork, seq, child)


def test_block_size_1_never_copies():
    """A17."""
    manager = make_manager(block_size=1, num_gpu_blocks=4)
    group = make_group(3, block_size=1)
    (seq,) = admit(manager, group)
    assert len(manager.get_block_table(seq)) == 3
    assert append(manager, seq) == []
    assert len(manager.get_block_table(seq)) == 4
    assert manager.can_append_slots(group) is False

    manager = make_manager(block_size=1, num_gpu_blocks=8)
    group = make_group(3, block_size=1)
    (seq,) = admit(manager, group)
    child = fork(manager, group, seq, 1)
    assert [append(manager, holder) for holder in (seq, child, seq, child)] == [[], [], [], []]


# Release.


def test_freeing_a_stranger_is_nothing_and_its_table_a_key_error():
    """A09."""
    manager = make_manager(num_gpu_blocks=4)
    stranger = make_group(2, seq_ids=(99,)).seqs[0]
    for _ in range(2):
        manager.free(stranger)
    assert manager.get_num_free_gpu_blocks() == 4
    with pytest.raises(KeyError, match="sequence 99"):
        manager.get_block_table(stranger)


def test_blocks_are_freed_front_to_back():
    manager = make_manager(num_gpu_blocks=3)
    (seq,) = admit(manager, make_group(12))
    front_to_back = manager.get_block_table(seq)
    manager.free(seq)
    (again,) = admit(manager, make_group(12, seq_ids=(1,)))
    assert manager.get_block_table(again) == front_to_back[::-1]


def test_a_swapped_sequence_frees_cpu_blocks():
    manager = make_manager(num_cpu_blocks=3)
    group = make_group(8)
    (seq,) = admit(manager, group)
    manager.swap_out(group)
    assert (manager.get_num_free_gpu_blocks(), manager.get_num_free_cpu_blocks()) == (8, 1)
    manager.free(seq)
    assert manager.get_num_free_cpu_blocks() == 3


def test_reset_frees_everything():
    manager = make_manager()
    group = make_group(8)
    (seq,) = admit(manager, group)
    fork(manager, group, seq, 1)
    manager.reset()
    assert (manager.block_tables, manager.get_num_free_gpu_blocks()) == ({}, 8)


# Swapping.


def test_sharing_survives_the_way_out_and_back():
    manager = make_manager(num_gpu_blocks=8, num_cpu_blocks=2)
    group = make_group(8)
    (parent,) = admit(manager, group)
    child = fork(manager, group, parent, 1)
    on_gpu = manager.get_block_table(parent)
    assert manager.can_swap_out(group) is True
    out = manager.swap_out(group)
    assert [source for source, _ in out] == on_gpu
    assert manager.get_block_table(parent) == manager.get_block_table(child) == [target for _, target in out]
    assert (manager.get_num_free_gpu_blocks(), manager.get_num_free_cpu_blocks()) == (8, 0)
    assert_books_balance(manager)
    for seq in group.seqs:
        seq.status = SequenceStatus.SWAPPED
    assert manager.can_swap_in(group) is AllocStatus.OK
    back = manager.swap_in(group)
    assert [source for source, _ in back] == [target for _, target in out]
    assert [block.ref_count for block in manager.block_tables[1]] == [2, 2]
    assert_books_balance(manager)


@pytest.mark.parametrize(("cpu_blocks", "answer"), [(1, False), (2, True)])
def test_can_swap_out_counts_distinct_blocks(cpu_blocks, answer):
    manager = make_manager(num_cpu_blocks=cpu_blocks)
    group = make_group(8)
    (seq,) = admit(manager, group)
    fork(manager, group, seq, 1)
    assert manager.can_swap_out(group) is answer


@pytest.mark.parametrize(
    ("gpu_blocks", "taken", "watermark", "status"),
    [
        (4, 0, 0.0, AllocStatus.OK),
        (4, 1, 0.0, AllocStatus.LATER),
        (3, 0, 0.0, AllocStatus.NEVER),
        (5, 0, 0.2, AllocStatus.OK),
        (5, 1, 0.2, AllocStatus.LATER),
        (4, 0, 0.25, AllocStatus.NEVER),
    ],
)
def test_can_swap_in_asks_for_one_more_block_a_swapped_sequence(gpu_blocks, taken, watermark, status):
    """Two shared blocks and two SWAPPED sequences: 4 blocks."""
    manager = make_manager(num_gpu_blocks=gpu_blocks, watermark=watermark)
    group = make_group(8)
    (seq,) = admit(manager, group)
    fork(manager, group, seq, 1)
    manager.swap_out(group)
    for seq in group.seqs:
        seq.status = SequenceStatus.SWAPPED
    if taken:
        admit(manager, make_group(4 * taken, seq_ids=(9,)))
    assert manager.can_swap_in(group) is status


def test_swaps_without_room_are_refused():
    manager = make_manager(num_gpu_blocks=2, num_cpu_blocks=1)
    group = make_group(8)
    admit(manager, group)
    refused(manager, ValueError, "needs 2 blocks, the CPU pool has 1 free of 1", manager.swap_out, group)

    manager = make_manager(num_gpu_blocks=2, num_cpu_blocks=2)
    group = make_group(8)
    (seq,) = admit(manager, group)
    manager.swap_out(group)
    seq.status = SequenceStatus.SWAPPED
    admit(manager, make_group(4, seq_ids=(1,)))
    refused(manager, ValueError, "needs 2 blocks, the GPU pool has 1 free of 2", manager.swap_in, group)


def test_swapping_out_twice_is_refused():
    manager = make_manager()
    group = make_group(4)
    admit(manager, group)
    manager.swap_out(group)
    refused(manager, ValueError, "on the CPU, not on the GPU", manager.swap_out, group)


def test_swapping_a_sequence_without_a_table_is_a_key_error():
    manager = make_manager()
    group = make_group(4)
    group.seqs[0].status = SequenceStatus.RUNNING
    refused(manager, KeyError, "sequence 0 has no block table", manager.swap_out, group)
    refused(manager, KeyError, "sequence 0 has no block table", manager.can_swap_out, group)


def test_without_caching_nothing_counts_as_computed():
    manager = make_manager()
    group = make_group(8)
    (seq,) = admit(manager, group)
    manager.access_all_blocks_in_seq(seq, now=3.0)
    manager.mark_blocks_as_computed(group)
    assert manager.get_common_computed_block_ids([seq]) == []
    assert all(block.last_accessed == -1 and not block.computed for block in manager.block_tables[0])


def test_impossible_managers_are_refused():
    for arguments, said in (
        ((4, 8, 8, -0.1), "watermark is -0.1"),
        ((0, 8, 8), "block_size is 0"),
        ((4, -1, 8), "num_blocks is -1"),
    ):
        with pytest.raises(ValueError, match=said):
            BlockSpaceManager(*arguments)


def test_a_sequence_that_counts_in_other_blocks_is_refused():
    manager = make_manager(block_size=4)
    group = make_group(40, block_size=16)
    refused(manager, ValueError, "blocks of 16 tokens, the pool's blocks hold 4", manager.allocate, group)
    refused(manager, ValueError, "blocks of 16 tokens", manager.can_allocate, group)

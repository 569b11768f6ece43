"""The manager with prefix caching: who shares, what counts as computed, when a key is given up."""

import random

import pytest

from refimpl import AllocStatus, BlockSpaceManager, Sequence, SequenceGroup, SequenceStatus
from refimpl.prefix_hash import SPARE_KEYS, AnonymousKey
from tests.core.helpers import append, assert_books_balance, fork

MERSENNE = 2**61 - 1  # CPython hashes ints modulo this


def make_manager(num_gpu_blocks=8, num_cpu_blocks=8, block_size=4, watermark=0.0, enable_caching=True):
    return BlockSpaceManager(block_size, num_gpu_blocks, num_cpu_blocks, watermark, enable_caching)


def make_group(tokens, *seq_ids, block_size=4):
    return SequenceGroup(f"r{seq_ids[0]}", [Sequence(seq_id, tokens, block_size) for seq_id in seq_ids])


def admit(manager, tokens, *seq_ids):
    """A request over these tokens that has its blocks and runs."""
    group = make_group(tokens, *seq_ids, block_size=manager.block_size)
    manager.allocate(group)
    move(group, SequenceStatus.RUNNING)
    return group


def move(group, status):
    for seq in group.seqs:
        seq.status = status


def swap_out(manager, group):
    pairs = manager.swap_out(group)
    move(group, SequenceStatus.SWAPPED)
    return pairs


def table(manager, group):
    return manager.get_block_table(group.seqs[0])


def blocks(manager, group):
    return manager.block_tables[group.seqs[0].seq_id]


def computed_ids(manager, group):
    return manager.get_common_computed_block_ids(group.seqs)


def free(manager, group):
    for seq in group.seqs:
        manager.free(seq)


def state(manager):
    """All that a refused call must leave as it was."""
    pools = [
        (
            {key: (block, block.ref_count, block.computed) for key, block in pool.cached_blocks.items()},
            pool.evictor.get_block_hashes(),
            pool.current_num_blocks,
        )
        for pool in (manager.gpu_allocator, manager.cpu_allocator)
    ]
    return {seq_id: list(table) for seq_id, table in manager.block_tables.items()}, pools


def refused(manager, error, said, call, *args):
    before = state(manager)
    with pytest.raises(error, match=said):
        call(*args)
    assert state(manager) == before


# Who shares.


def test_equal_blocks_behind_different_ones_are_not_shared():
    """B01."""
    manager = make_manager()
    groups = admit(manager, [1, 2, 3, 4, 9, 9, 9, 9], 0), admit(manager, [5, 6, 7, 8, 9, 9, 9, 9], 1)
    held = [block for group in groups for block in blocks(manager, group)]
    assert len(set(held)) == 4
    assert [block.ref_count for block in held] == [1] * 4


def test_a_forced_collision_yields_two_blocks():
    """B04, B06. Both prompts have the same hash."""
    one, other = [0] * 4, [MERSENNE] * 4
    assert hash(tuple(one)) == hash(tuple(other))
    manager = make_manager()
    groups = admit(manager, one, 0), admit(manager, other, 1)
    assert table(manager, groups[0]) != table(manager, groups[1])


def test_equal_prompts_share_every_block_the_partial_last_one_too():
    manager = make_manager()
    one, other = admit(manager, range(6), 0), admit(manager, range(6), 1)
    assert table(manager, one) == table(manager, other) == [0, 1]
    assert [block.ref_count for block in blocks(manager, one)] == [2, 2]
    assert_books_balance(manager)


def test_a_shorter_prompt_shares_the_full_blocks_only():
    manager = make_manager()
    long, short = admit(manager, range(8), 0), admit(manager, range(6), 1)
    assert table(manager, long)[0] == table(manager, short)[0]
    assert table(manager, long)[1] != table(manager, short)[1]


def test_a_chat_turn_finds_the_previous_answer():
    """B18. Where the prompt ended does not matter."""
    manager = make_manager()
    first = admit(manager, [1, 2, 3, 4, 5, 6], 0)
    for token_id in (7, 8, 9):
        append(manager, first.seqs[0], token_id)
    answered = table(manager, first)
    free(manager, first)
    second = admit(manager, range(1, 11), 1)
    assert table(manager, second)[:2] == answered[:2]
    assert table(manager, second)[2] != answered[2]


def test_a_group_of_several_waiting_sequences_owns_its_blocks_once_each():
    """B22."""
    manager = make_manager()
    group = admit(manager, range(6), 0, 1)
    assert [block.ref_count for block in blocks(manager, group)] == [2, 2]
    assert_books_balance(manager)
    free(manager, group)
    assert manager.get_num_free_gpu_blocks() == 8


def test_finished_siblings_own_nothing():
    manager = make_manager()
    group = make_group(range(6), 0, 1, 2)
    group.seqs[1].status = SequenceStatus.FINISHED_STOPPED
    manager.allocate(group)
    assert [block.ref_count for block in manager.block_tables[0]] == [2, 2]
    free(manager, group)
    assert manager.get_num_free_gpu_blocks() == 8


# What counts as computed.


def test_one_block_is_always_left_to_compute():
    """B02."""
    manager = make_manager()
    first = admit(manager, range(8), 0)
    manager.mark_blocks_as_computed(first)
    second = admit(manager, range(8), 1)
    assert table(manager, second) == table(manager, first)
    assert computed_ids(manager, second) == table(manager, first)[:1]

    manager = make_manager()
    first = admit(manager, range(4), 0)
    manager.mark_blocks_as_computed(first)
    assert computed_ids(manager, admit(manager, range(4), 1)) == []


def test_every_full_block_counts_as_computed():
    """B12."""
    manager = make_manager()
    first = admit(manager, range(9), 0)
    manager.mark_blocks_as_computed(first)
    assert [block.computed for block in blocks(manager, first)] == [True, True, False]
    second = admit(manager, range(9), 1)
    assert computed_ids(manager, second) == table(manager, first)[:2]


def test_every_sequence_of_a_group_is_marked():
    manager = make_manager()
    group = admit(manager, range(4), 0)
    child = fork(manager, group, group.seqs[0], 1)
    for seq, token_id in ((group.seqs[0], 50), (child, 60)):
        for i in range(4):
            append(manager, seq, token_id + i)
    stranger = Sequence(9, range(4), 4)
    group.add(stranger)
    manager.mark_blocks_as_computed(group)
    assert [[block.computed for block in manager.block_tables[seq_id]] for seq_id in (0, 1)] == [[True, True]] * 2


def test_leading_computed_blocks_only():
    """A hole ends them."""
    manager = make_manager()
    group = admit(manager, range(16), 0)
    for block in blocks(manager, group)[0], blocks(manager, group)[2]:
        block.computed = True
    assert computed_ids(manager, group) == table(manager, group)[:1]


def test_no_hits_is_an_empty_list():
    manager = make_manager()
    group = admit(manager, range(9), 0)
    assert computed_ids(manager, group) == []
    assert manager.get_common_computed_block_ids([]) == []


def test_one_sequence_without_hits_means_no_common_prefix():
    manager = make_manager()
    hit, miss = admit(manager, range(9), 0), admit(manager, range(50, 59), 1)
    manager.mark_blocks_as_computed(hit)
    assert len(computed_ids(manager, hit)) == 2
    assert manager.get_common_computed_block_ids([hit.seqs[0], miss.seqs[0]]) == []
    assert manager.get_common_computed_block_ids([hit.seqs[0], Sequence(7, range(9), 4)]) == []


def test_the_common_prefix_ends_where_two_tables_part():
    manager = make_manager()
    one, other = admit(manager, range(12), 0), admit(manager, [0, 1, 2, 3, 70, 71, 72, 73, 74], 1)
    manager.mark_blocks_as_computed(one)
    manager.mark_blocks_as_computed(other)
    assert manager.get_common_computed_block_ids([one.seqs[0], other.seqs[0]]) == table(manager, one)[:1]


def test_evicted_content_is_gone():
    """B09, B10."""
    manager = make_manager(num_gpu_blocks=2)
    first = admit(manager, range(8), 0)
    manager.mark_blocks_as_computed(first)
    free(manager, first)
    second = admit(manager, range(100, 108), 1)
    assert [block.computed for block in blocks(manager, second)] == [False, False]
    assert computed_ids(manager, second) == []
    free(manager, second)
    assert computed_ids(manager, admit(manager, range(8), 2)) == []


def test_a_freed_block_is_still_computed():
    """B10."""
    manager = make_manager(num_gpu_blocks=8)
    first = admit(manager, range(8), 0)
    before = table(manager, first)
    manager.mark_blocks_as_computed(first)
    free(manager, first)
    second = admit(manager, range(8), 1)
    assert (table(manager, second), computed_ids(manager, second)) == (before, before[:1])
    assert manager.get_num_free_gpu_blocks() == 6


def test_the_least_recently_used_request_is_evicted_whichever_was_freed_first():
    manager = make_manager(num_gpu_blocks=4)
    old, young = admit(manager, range(8), 0), admit(manager, range(50, 58), 1)
    manager.access_all_blocks_in_seq(old.seqs[0], now=1.0)
    manager.access_all_blocks_in_seq(young.seqs[0], now=2.0)
    manager.mark_blocks_as_computed(young)
    free(manager, young)
    free(manager, old)
    admit(manager, range(90, 98), 2)
    assert len(computed_ids(manager, admit(manager, range(50, 58), 3))) == 1


def test_a_prefix_outlives_its_tail():
    """B14."""
    manager = make_manager(num_gpu_blocks=3)
    group = admit(manager, range(12), 0)
    manager.access_all_blocks_in_seq(group.seqs[0], now=1.0)
    manager.mark_blocks_as_computed(group)
    before = table(manager, group)
    free(manager, group)
    admit(manager, [90], 1)
    assert computed_ids(manager, admit(manager, range(8), 2)) == before[:1]


def test_reset_frees_every_table_and_keeps_the_content():
    manager = make_manager()
    group = admit(manager, range(9), 0)
    manager.mark_blocks_as_computed(group)
    before = table(manager, group)
    manager.reset()
    assert (manager.block_tables, manager.get_num_free_gpu_blocks()) == ({}, 8)
    assert computed_ids(manager, admit(manager, range(9), 1)) == before[:2]


# Growth: when a key is given up, and when it is earned.


def test_a_block_that_fills_up_is_found_by_its_content():
    manager = make_manager()
    group = admit(manager, range(3), 0)
    assert append(manager, group.seqs[0], 3) == []
    assert table(manager, admit(manager, range(4), 1)) == table(manager, group)


def test_a_block_that_fills_up_with_known_content_is_exchanged_without_a_copy():
    manager = make_manager()
    known, group = admit(manager, range(8), 0), admit(manager, range(7), 1)
    own = table(manager, group)[1]
    assert append(manager, group.seqs[0], 7) == []
    assert table(manager, group) == table(manager, known)
    assert blocks(manager, known)[1].ref_count == 2
    assert (own, manager.get_num_free_gpu_blocks()) == (2, 6)


def test_a_block_of_one_token_has_its_content_at_once():
    """A17, with caching."""
    manager = make_manager(block_size=1)
    one, other = admit(manager, [1], 0), admit(manager, [1], 1)
    assert [append(manager, group.seqs[0], 2) for group in (one, other)] == [[], []]
    assert table(manager, one) == table(manager, other)
    assert manager.get_num_free_gpu_blocks() == 6


def test_a_block_opened_in_decoding_is_nobody_elses_until_it_is_full():
    manager = make_manager()
    one, other = admit(manager, range(4), 0), admit(manager, range(4), 1)
    for group in one, other:
        append(manager, group.seqs[0], 4)
    assert table(manager, one)[1] != table(manager, other)[1]
    assert isinstance(blocks(manager, one)[1].block_hash, AnonymousKey)
    for token_id in (5, 6, 7):
        for group in one, other:
            assert append(manager, group.seqs[0], token_id) == []
    assert table(manager, one) == table(manager, other)
    assert_books_balance(manager)


def test_a_written_partial_block_is_no_longer_the_prompts():
    manager = make_manager()
    group = admit(manager, [1, 2], 0)
    assert append(manager, group.seqs[0], 7) == []
    key = blocks(manager, group)[0].block_hash
    assert append(manager, group.seqs[0], 8) == []
    assert isinstance(key, AnonymousKey)
    assert table(manager, admit(manager, [1, 2], 1)) != table(manager, group)


def test_equal_prompts_that_went_different_ways_are_not_swapped_onto_each_other():
    """One would read the other's tokens."""
    manager = make_manager()
    first = admit(manager, [1, 2], 0)
    append(manager, first.seqs[0], 7)
    swap_out(manager, first)
    second = admit(manager, [1, 2], 1)
    append(manager, second.seqs[0], 8)
    swap_out(manager, second)
    assert table(manager, first) != table(manager, second)
    assert_books_balance(manager)


def test_an_anonymous_block_keeps_its_key_while_it_is_partial():
    manager = make_manager()
    group = admit(manager, range(4), 0)
    append(manager, group.seqs[0], 4)
    key = blocks(manager, group)[1].block_hash
    append(manager, group.seqs[0], 5)
    assert blocks(manager, group)[1].block_hash is key


def test_a_shared_partial_block_is_copied_before_it_is_written():
    manager = make_manager()
    one, other = admit(manager, [1, 2], 0), admit(manager, [1, 2], 1)
    shared = table(manager, one)
    ((source, target),) = append(manager, one.seqs[0], 7)
    assert ([source], [target]) == (shared, table(manager, one))
    assert isinstance(blocks(manager, one)[0].block_hash, AnonymousKey)
    assert append(manager, other.seqs[0], 8) == []
    assert isinstance(blocks(manager, other)[0].block_hash, AnonymousKey)


def test_the_target_of_a_copy_may_be_a_block_that_is_known():
    manager = make_manager()
    known = admit(manager, [1, 2, 3, 4], 0)
    group = admit(manager, [1, 2, 3], 1)
    fork(manager, group, group.seqs[0], 2)
    shared = table(manager, group)[0]
    assert append(manager, group.seqs[0], 4) == [(shared, table(manager, known)[0])]
    assert blocks(manager, known)[0].ref_count == 2
    assert_books_balance(manager)


def test_a_sequence_without_tokens_grows_from_nothing():
    manager = make_manager()
    group = admit(manager, [], 0)
    assert manager.append_slots(group.seqs[0]) == []
    assert append(manager, group.seqs[0], 1) == []
    assert len(table(manager, group)) == 1


# Swapping.


@pytest.mark.parametrize("enable_caching", [False, True])
def test_swapping_keeps_sharing(enable_caching):
    """C13. With caching a block comes back to its old copy, and the pair is listed all the same."""
    manager = make_manager(enable_caching=enable_caching)
    group = admit(manager, range(6), 0)
    child = fork(manager, group, group.seqs[0], 1)
    assert len(append(manager, group.seqs[0], 50) + append(manager, child, 60)) == 1
    before = [manager.get_block_table(seq) for seq in group.seqs]
    out = swap_out(manager, group)
    assert len(out) == 3
    assert (manager.get_num_free_gpu_blocks(), manager.get_num_free_cpu_blocks()) == (8, 5)
    assert [block.ref_count for block in blocks(manager, group)] == [2, 1]
    assert_books_balance(manager)
    back = manager.swap_in(group)
    assert [cpu for cpu, _ in back] == [cpu for _, cpu in out]
    assert [block.ref_count for block in blocks(manager, group)] == [2, 1]
    assert (manager.get_num_free_gpu_blocks(), manager.get_num_free_cpu_blocks()) == (5, 8)
    if enable_caching:
        assert [manager.get_block_table(seq) for seq in group.seqs] == before
    assert_books_balance(manager)


@pytest.mark.parametrize("enable_caching", [False, True])
@pytest.mark.parametrize(("num_cpu_blocks", "answer"), [(1, False), (2, True), (3, True)])
def test_two_blocks_need_two_to_be_swapped_out(num_cpu_blocks, answer, enable_caching):
    """C13."""
    manager = make_manager(num_cpu_blocks=num_cpu_blocks, enable_caching=enable_caching)
    assert manager.can_swap_out(admit(manager, range(8), 0)) is answer


@pytest.mark.parametrize("enable_caching", [False, True])
@pytest.mark.parametrize(
    ("num_gpu_blocks", "watermark_blocks", "answer"), [(2, 0, "NEVER"), (3, 0, "OK"), (3, 1, "NEVER"), (4, 1, "OK")]
)
def test_two_blocks_need_three_to_come_back(num_gpu_blocks, watermark_blocks, answer, enable_caching):
    """C13. V0 says LATER where the watermark is in the way, and means for ever."""
    watermark = (watermark_blocks + 0.1) / num_gpu_blocks
    manager = make_manager(num_gpu_blocks, watermark=watermark, enable_caching=enable_caching)
    group = admit(manager, range(8), 0)
    swap_out(manager, group)
    assert manager.watermark_blocks == watermark_blocks
    assert manager.can_swap_in(group).name == answer


def test_equal_content_of_two_requests_is_swapped_onto_one_block():
    manager = make_manager()
    one, other = admit(manager, range(4), 0), admit(manager, range(4), 1)
    assert len(swap_out(manager, one)) == len(swap_out(manager, other)) == 1
    assert table(manager, one) == table(manager, other)
    assert blocks(manager, one)[0].ref_count == 2
    assert manager.get_num_free_cpu_blocks() == 7


def test_a_full_cpu_pool_still_takes_what_it_has_already():
    manager = make_manager(num_cpu_blocks=1)
    one, other = admit(manager, range(4), 0), admit(manager, range(4), 1)
    swap_out(manager, one)
    assert swap_out(manager, other) == [(0, 0)]
    assert manager.get_num_free_cpu_blocks() == 0


# What is refused leaves nothing half done.


def test_allocation_without_room_is_refused():
    manager = make_manager(num_gpu_blocks=3)
    group = admit(manager, range(8), 0)
    manager.mark_blocks_as_computed(group)
    refused(manager, ValueError, "needs 2 blocks, the GPU pool has 1 free of 3", manager.allocate, too_long())
    free(manager, group)
    admit(manager, range(50, 58), 1)
    refused(manager, ValueError, "needs 4 blocks, the GPU pool has 1 free of 3", manager.allocate, too_long())


def too_long():
    return make_group(range(16), 9)


def test_live_hits_take_no_room():
    manager = make_manager(num_gpu_blocks=3)
    admit(manager, range(8), 0)
    assert table(manager, admit(manager, range(12), 1)) == [0, 1, 2]
    assert manager.get_num_free_gpu_blocks() == 0


def test_a_second_allocation_is_refused():
    """A14, with caching."""
    manager = make_manager()
    group = make_group(range(6), 0)
    manager.allocate(group)
    refused(manager, ValueError, "sequence 0 has a block table already", manager.allocate, group)
    free(manager, group)
    assert manager.get_num_free_gpu_blocks() == 8


def test_growth_without_room_is_refused():
    manager = make_manager(num_gpu_blocks=1)
    group = admit(manager, range(3), 0)
    fork(manager, group, group.seqs[0], 1)
    for token_id in (3, 4):
        group.seqs[0].append_token_id(token_id)
        refused(manager, ValueError, "all 1 GPU blocks are in use", manager.append_slots, group.seqs[0])


def test_swaps_without_room_are_refused():
    manager = make_manager(num_gpu_blocks=3, num_cpu_blocks=2)
    group = admit(manager, range(12), 0)
    assert manager.can_swap_out(group) is False
    refused(manager, ValueError, "needs 3 blocks, the CPU pool has 2 free of 2", manager.swap_out, group)
    free(manager, group)
    group = admit(manager, range(8), 1)
    swap_out(manager, group)
    other = admit(manager, range(50, 58), 2)
    assert manager.can_swap_in(group) is AllocStatus.LATER
    refused(manager, ValueError, "needs 2 blocks, the GPU pool has 1 free of 3", manager.swap_in, group)
    refused(manager, ValueError, "on the GPU, not on the CPU", swap_in_although_running, manager, other)


def swap_in_although_running(manager, group):
    move(group, SequenceStatus.SWAPPED)
    try:
        manager.swap_in(group)
    finally:
        move(group, SequenceStatus.RUNNING)


# The whole.


@pytest.mark.parametrize("enable_caching", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_ok_means_that_allocation_succeeds_and_takes_no_more_than_was_counted(enable_caching, seed):
    """A12."""
    rng = random.Random(seed)
    manager = BlockSpaceManager(2, 12, 0, watermark=rng.choice([0, 0.1, 0.25]), enable_caching=enable_caching)
    admitted = []
    for seq_id in range(200):
        group = make_group([rng.randrange(2) for _ in range(rng.randint(1, 30))], seq_id, block_size=2)
        required, free_before = group.seqs[0].n_blocks, manager.get_num_free_gpu_blocks()
        answer = manager.can_allocate(group)
        if answer is AllocStatus.OK:
            manager.allocate(group)
            taken = free_before - manager.get_num_free_gpu_blocks()
            assert taken <= required if enable_caching else taken == required
            assert manager.get_num_free_gpu_blocks() >= manager.watermark_blocks
            admitted.append(group)
        else:
            never = 12 - required < manager.watermark_blocks
            assert answer is (AllocStatus.NEVER if never else AllocStatus.LATER)
        if admitted and rng.random() < 0.4:
            free(manager, admitted.pop(rng.randrange(len(admitted))))
        assert_books_balance(manager)


def test_the_keys_of_live_blocks_survive_any_number_of_other_prompts():
    manager = make_manager(num_gpu_blocks=8, num_cpu_blocks=4)
    here, away = admit(manager, range(12), 0), admit(manager, range(50, 58), 1)
    manager.mark_blocks_as_computed(here)
    swap_out(manager, away)
    for seq_id in range(2, 2 + 4 * SPARE_KEYS):
        free(manager, admit(manager, [1000 + seq_id] * 4, seq_id))
        assert len(manager.prefix_keys) <= 2 * SPARE_KEYS
    assert table(manager, admit(manager, range(12), 8000)) == table(manager, here)
    again = admit(manager, range(50, 58), 8001)
    before = table(manager, away)
    swap_out(manager, again)
    assert table(manager, again) == before


def test_a_growing_sequence_keeps_the_numbering_bounded():
    manager = make_manager(num_gpu_blocks=8 * SPARE_KEYS, block_size=1)
    seqs = [admit(manager, [seq_id], seq_id).seqs[0] for seq_id in range(3)]
    for token_id in range(2 * SPARE_KEYS):
        for seq in seqs:
            append(manager, seq, token_id)
        if token_id % 100 == 99:
            manager.free(seqs[2])
            seqs[2] = admit(manager, [10 * SPARE_KEYS + token_id], 3 + token_id).seqs[0]
    held = sum(len(block_table) for block_table in manager.block_tables.values())
    assert len(manager.prefix_keys) < 5 * held + SPARE_KEYS
    assert_books_balance(manager)


# What is left out says so.


def test_sliding_windows_are_refused():
    """A03, A12."""
    for enable_caching in (False, True):
        with pytest.raises(NotImplementedError, match="sliding_window is 4"):
            BlockSpaceManager(2, 8, 8, enable_caching=enable_caching, sliding_window=4)


def test_lookahead_slots_are_refused():
    """A19."""
    manager = make_manager()
    group = admit(manager, range(4), 0)
    refused(manager, NotImplementedError, "num_lookahead_slots is 5", manager.can_append_slots, group, 5)
    refused(manager, NotImplementedError, "num_lookahead_slots is 5", manager.append_slots, group.seqs[0], 5)
    refused(manager, NotImplementedError, "num_lookahead_slots is 5", manager.can_swap_in, group, 5)
    assert manager.can_append_slots(group, num_lookahead_slots=0) is True
    assert manager.append_slots(group.seqs[0], num_lookahead_slots=0) == []
    assert len(table(manager, group)) == 1

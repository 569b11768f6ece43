"""Blocks by content: hits on live and on freed blocks, misses, relabelling, and what is refused."""

import pytest

from refimpl import CachedBlockAllocator, Device
from refimpl.prefix_hash import AnonymousKey


def make_pool(num_blocks):
    return CachedBlockAllocator(Device.GPU, block_size=4, num_blocks=num_blocks)


def state(pool):
    """All that a refused call must leave as it was."""
    live = {key: (block, block.ref_count, block.computed) for key, block in pool.cached_blocks.items()}
    return live, pool.evictor.get_block_hashes(), pool.current_num_blocks, pool.get_num_free_blocks()


def refused(pool, said, call, *args):
    before = state(pool)
    with pytest.raises(ValueError, match=said):
        call(*args)
    assert state(pool) == before


def test_double_free_is_refused_and_changes_nothing():
    """A01."""
    pool = make_pool(1)
    block = pool.allocate(11)
    pool.free(block)
    refused(pool, "Double free: GPU block 0", pool.free, block)
    assert (pool.get_num_free_blocks(), block.ref_count) == (1, 0)
    pool.allocate(12)
    refused(pool, "No usable cache memory left: all 1 GPU blocks", pool.allocate, 13)
    refused(pool, "No usable cache memory left", pool.allocate)


def test_a_live_block_gets_another_owner():
    pool = make_pool(2)
    block = pool.allocate(7, 4)
    assert pool.allocate(7, 4) is block
    assert (block.ref_count, pool.get_num_free_blocks()) == (2, 1)
    for left, free in ((1, 1), (0, 2)):
        pool.free(block)
        assert (block.ref_count, pool.get_num_free_blocks()) == (left, free)


def test_a_freed_block_is_found_again_as_it_was():
    pool = make_pool(2)
    block = pool.allocate(7, 4)
    block.computed, block.last_accessed = True, 3.0
    pool.free(block)
    assert pool.contains_block(7)
    again = pool.allocate(7, 99)
    assert again is block
    assert (again.ref_count, again.computed, again.last_accessed, again.num_hashed_tokens) == (1, True, 3.0, 4)
    assert pool.get_num_free_blocks() == 1


def test_new_blocks_are_created_before_any_is_given_up():
    pool = make_pool(3)
    for number in range(3):
        block = pool.allocate(number)
        assert block.block_number == number
        pool.free(block)
    assert [pool.contains_block(key) for key in range(3)] == [True, True, True]


def test_the_victim_is_relabelled():
    """B10."""
    pool = make_pool(1)
    block = pool.allocate(7, 4)
    block.computed, block.last_accessed = True, 3.0
    pool.free(block)
    assert pool.allocate(8, 12) is block
    assert (block.block_hash, block.num_hashed_tokens) == (8, 12)
    assert (block.computed, block.last_accessed, block.ref_count) == (False, -1, 1)


def test_the_old_key_dies_with_the_old_content():
    """B09."""
    pool = make_pool(1)
    first = pool.allocate(10)
    pool.free(first)
    second = pool.allocate(11)
    assert (pool.contains_block(10), pool.contains_block(11)) == (False, True)
    assert (second.block_number, pool.get_num_free_blocks()) == (first.block_number, 0)


def test_anonymous_blocks_are_shared_with_nobody():
    """B17."""
    pool = make_pool(6)
    blocks = [pool.allocate(0, 4), pool.allocate(), pool.allocate(1, 4), pool.allocate(), pool.allocate(None, 4)]
    assert len({block.block_number for block in blocks}) == 5
    assert [block.ref_count for block in blocks] == [1] * 5


def test_a_freed_anonymous_block_is_memory_again():
    pool = make_pool(1)
    pool.free(pool.allocate())
    assert pool.get_num_free_blocks() == 1
    assert pool.allocate().block_number == 0


def test_a_live_block_takes_a_new_key():
    pool = make_pool(2)
    block = pool.allocate()
    anonymous = block.block_hash
    pool.update_hash(7, block)
    assert (pool.contains_block(anonymous), pool.contains_block(7)) == (False, True)
    assert pool.allocate(7) is block
    pool.free(block)
    pool.free(block)
    assert pool.evictor.get_block_hashes() == [7]


def test_a_key_that_is_taken_and_a_block_that_is_not_live_are_refused():
    pool = make_pool(3)
    live, freed, block = pool.allocate(1), pool.allocate(2), pool.allocate(3)
    pool.free(freed)
    for key in (1, 2, 3):
        refused(pool, f"key {key} belongs to a block already", pool.update_hash, key, block)
    refused(pool, "GPU block 1 is not in use here", pool.update_hash, 4, freed)
    stranger = make_pool(1).allocate(3)
    refused(pool, "GPU block 0 is not in use here", pool.update_hash, 4, stranger)
    assert (live.block_hash, freed.block_hash, block.block_hash, stranger.block_hash) == (1, 2, 3, 3)


def test_what_a_list_of_keys_costs():
    """A live block costs nothing; a freed one is taken out of what is free, like one that is not there."""
    pool = make_pool(4)
    pool.allocate(1)
    pool.free(pool.allocate(2))
    assert pool.get_num_blocks_to_take([1, 2, 3, AnonymousKey()]) == 3
    assert pool.get_num_blocks_to_take([]) == 0
    assert sorted(pool.get_block_hashes()) == [1, 2]
    assert pool.get_num_total_blocks() == 4


def test_an_empty_pool_is_a_pool():
    pool = make_pool(0)
    assert (pool.get_num_free_blocks(), pool.get_num_total_blocks(), pool.get_block_hashes()) == (0, 0, [])
    refused(pool, "all 0 GPU blocks", pool.allocate, 1)


@pytest.mark.parametrize(("size", "number", "said"), [(0, 1, "block_size is 0"), (4, -1, "num_blocks is -1")])
def test_impossible_pools_are_refused(size, number, said):
    with pytest.raises(ValueError, match=said):
        CachedBlockAllocator(Device.GPU, size, number)

"""The free list."""

import pytest

from refimpl import Device, UncachedBlockAllocator


def make_pool(num_blocks):
    return UncachedBlockAllocator(Device.GPU, block_size=4, num_blocks=num_blocks)


def test_double_free_is_refused_and_changes_nothing():
    """A01."""
    pool = make_pool(1)
    block = pool.allocate()
    pool.free(block)
    with pytest.raises(ValueError, match="Double free: GPU block 0"):
        pool.free(block)
    assert (pool.get_num_free_blocks(), block.ref_count) == (1, 0)
    pool.allocate()
    with pytest.raises(ValueError, match="Out of memory: all 1 GPU blocks"):
        pool.allocate()
    assert (pool.get_num_free_blocks(), block.ref_count) == (0, 1)


def test_the_highest_number_goes_out_first():
    pool = make_pool(3)
    assert [pool.allocate().block_number for _ in range(3)] == [2, 1, 0]


def test_the_block_freed_last_goes_out_first():
    pool = make_pool(3)
    blocks = [pool.allocate() for _ in range(3)]
    for block in (blocks[1], blocks[2], blocks[0]):
        pool.free(block)
    assert [pool.allocate() for _ in range(3)] == [blocks[0], blocks[2], blocks[1]]


def test_a_shared_block_comes_back_with_its_last_owner():
    pool = make_pool(2)
    block = pool.allocate()
    block.ref_count += 2
    for left in (2, 1):
        pool.free(block)
        assert (block.ref_count, pool.get_num_free_blocks()) == (left, 1)
    pool.free(block)
    assert (block.ref_count, pool.get_num_free_blocks()) == (0, 2)


def test_both_arguments_are_ignored():
    pool = make_pool(2)
    assert pool.allocate(7, 4) is not pool.allocate(7, 4)


def test_an_empty_pool_is_a_pool():
    pool = make_pool(0)
    assert (pool.get_num_free_blocks(), pool.get_num_total_blocks()) == (0, 0)


def test_content_is_not_its_business():
    pool = make_pool(1)
    assert pool.get_block_hashes() == []
    with pytest.raises(NotImplementedError, match="CachedBlockAllocator"):
        pool.contains_block(1)
    with pytest.raises(NotImplementedError, match="CachedBlockAllocator"):
        pool.update_hash(1, pool.allocate())


@pytest.mark.parametrize(("size", "number", "said"), [(0, 1, "block_size is 0"), (4, -1, "num_blocks is -1")])
def test_impossible_pools_are_refused(size, number, said):
    with pytest.raises(ValueError, match=said):
        UncachedBlockAllocator(Device.GPU, size, number)

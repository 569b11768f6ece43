"""Blocks, tables and how many are needed."""

import pytest

from refimpl import Device, PhysicalTokenBlock, num_required_blocks, share_block_table


@pytest.mark.parametrize(("num_tokens", "blocks"), [(0, 0), (1, 1), (3, 1), (4, 1), (5, 2), (8, 2), (9, 3)])
def test_blocks_needed_at_the_boundaries(num_tokens, blocks):
    """A06."""
    assert num_required_blocks(num_tokens, block_size=4) == blocks


def test_a_new_block_has_no_owner_and_no_content():
    block = PhysicalTokenBlock(Device.CPU, 3, 16)
    assert (block.device, block.block_number, block.block_size) == (Device.CPU, 3, 16)
    assert (block.ref_count, block.last_accessed, block.computed) == (0, -1, False)
    assert (block.block_hash, block.num_hashed_tokens) == (-1, 0)


def test_blocks_with_equal_numbers_are_different_blocks():
    one, other = PhysicalTokenBlock(Device.GPU, 3, 16), PhysicalTokenBlock(Device.GPU, 3, 16)
    assert one != other
    assert len({one, other, PhysicalTokenBlock(Device.CPU, 3, 16)}) == 3


def test_repr_has_no_address():
    assert repr(PhysicalTokenBlock(Device.GPU, 3, 16)) == "PhysicalTokenBlock(device=GPU, block_number=3, ref_count=0)"


@pytest.mark.parametrize(("number", "size", "said"), [(-1, 16, "-1"), (0, 0, "block_size is 0")])
def test_impossible_blocks_are_refused(number, size, said):
    with pytest.raises(ValueError, match=said):
        PhysicalTokenBlock(Device.GPU, number, size)


@pytest.mark.parametrize(("tokens", "size", "said"), [(-1, 16, "num_tokens is -1"), (5, 0, "block_size is 0")])
def test_impossible_lengths_are_refused(tokens, size, said):
    with pytest.raises(ValueError, match=said):
        num_required_blocks(tokens, size)


def test_sharing_makes_a_new_list_over_the_same_blocks():
    table = [PhysicalTokenBlock(Device.GPU, number, 16) for number in (5, 2)]
    for block in table:
        block.ref_count = 1
    shared = share_block_table(share_block_table(table))
    assert shared is not table
    assert all(a is b for a, b in zip(shared, table, strict=True))
    assert [block.ref_count for block in table] == [3, 3]

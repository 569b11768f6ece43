"""Blocks, tables and how many are needed."""

import pytest

from refimpl import (
    Device,
    PhysicalTokenBlock,
    distinct_blocks,
    kv_bytes_per_block,
    num_required_blocks,
    share_block_table,
)

SIZES = {"block_size": 16, "num_layers": 30, "num_kv_heads": 3, "head_dim": 64, "dtype_bytes": 4}


def blocks(*numbers, device=Device.GPU):
    return [PhysicalTokenBlock(device, number, 16) for number in numbers]


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


def test_a_block_keeps_the_content_key_that_it_is_given():
    block = PhysicalTokenBlock(Device.GPU, 0, 1, ("a key", 3), 48)
    assert (block.block_number, block.block_size) == (0, 1)
    assert (block.block_hash, block.num_hashed_tokens) == (("a key", 3), 48)


def test_a_block_is_found_as_a_key_whatever_becomes_of_it():
    block, *others = blocks(3, 3, 5)
    cpu_block_of = {block: 7, others[0]: 8}
    block.ref_count, block.last_accessed, block.computed = 2, 7.5, True
    assert (cpu_block_of[block], cpu_block_of[others[0]]) == (7, 8)
    assert (others[0].ref_count, others[0].last_accessed, others[0].computed) == (0, -1, False)


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


@pytest.mark.parametrize(
    ("sizes", "size"),
    [
        pytest.param((16, 40, 40, 128, 2), 13_107_200, id="OPT-13B"),
        pytest.param((16, 32, 8, 128, 2), 2_097_152, id="Llama 3 8B"),
        pytest.param((16, 30, 3, 64, 4), 737_280, id="SmolLM2-135M in float32"),
        pytest.param((1, 1, 1, 1, 1), 2, id="a key and a value"),
    ],
)
def test_bytes_of_a_block(sizes, size):
    """Of OPT-13B 819,200 bytes a token: Kwon et al., 2023, section 3."""
    assert kv_bytes_per_block(*sizes) == size
    assert isinstance(kv_bytes_per_block(*sizes), int)


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("size", [0, -1])
def test_a_block_of_impossible_size_has_no_bytes(name, size):
    with pytest.raises(ValueError, match=f"^{name} is {size}, it must be 1 or more$"):
        kv_bytes_per_block(**{**SIZES, name: size})


def test_distinct_blocks_lists_a_shared_block_once_and_keeps_the_order():
    five, two, seven = blocks(5, 2, 7)
    (cpu_two,) = blocks(2, device=Device.CPU)
    table, other = [five, two], [five, cpu_two, seven]
    found = distinct_blocks([table, other])
    assert type(found) is list
    assert [id(block) for block in found] == [id(block) for block in (five, two, cpu_two, seven)]
    assert (table, other) == ([five, two], [five, cpu_two, seven])
    assert [block.ref_count for block in found] == [0, 0, 0, 0]


def test_blocks_that_look_alike_are_all_distinct():
    assert len(distinct_blocks([blocks(0), blocks(0), blocks(0, device=Device.CPU)])) == 3


@pytest.mark.parametrize("tables", [[], [[]], iter([[], []])])
def test_no_blocks_are_distinct_where_there_are_none(tables):
    assert distinct_blocks(tables) == []


def test_distinct_blocks_walks_once_through_tables_that_come_one_at_a_time():
    one, other = blocks(1, 2)
    assert distinct_blocks(table for table in ([other, one], [one])) == [other, one]

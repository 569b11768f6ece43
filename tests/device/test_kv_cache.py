"""The pools of keys and values: what is written, copied and swapped lands where it should and nowhere else."""

from __future__ import annotations

import pytest
import torch

from refimpl import KVCache, slot_mapping

LAYERS, BLOCK_SIZE, KV_HEADS, HEAD_DIM = 3, 4, 2, 5


def cache_with_unique_values(num_gpu_blocks: int = 6, num_cpu_blocks: int = 5) -> KVCache:
    """Every number in both pools is different from every other."""
    cache = KVCache(LAYERS, num_gpu_blocks, num_cpu_blocks, BLOCK_SIZE, KV_HEADS, HEAD_DIM, torch.float32, "cpu")
    cache.gpu.copy_(torch.arange(cache.gpu.numel()).view_as(cache.gpu))
    cache.cpu.copy_(-1.0 - torch.arange(cache.cpu.numel()).view_as(cache.cpu))
    return cache


def tokens(count: int, start: float = 0.0) -> torch.Tensor:
    return start + torch.rand(count, KV_HEADS, HEAD_DIM, generator=torch.Generator().manual_seed(count))


def test_slot_follows_the_block_table():
    table = [4740, 3]
    assert slot_mapping(table, [9, 0, 15, 16, 31], 16).tolist() == [75849, 75840, 75855, 48, 63]
    assert slot_mapping(table, [-1, 2, -1], 16).tolist() == [-1, 75842, -1]
    assert slot_mapping(table, [], 16).tolist() == slot_mapping([], [], 16).tolist() == []
    assert slot_mapping(table, range(3), 16).dtype == torch.int64


def test_slots_beyond_32_bits_are_exact():
    """D08: block number times block size does not fit int32."""
    assert slot_mapping([2**31], [5], 16).tolist() == [2**35 + 5]


@pytest.mark.parametrize(("positions", "named"), [([8], "position 8"), ([0, -2], "position -2"), ([3, 99], "99")])
def test_a_position_without_a_slot_is_refused(positions, named):
    with pytest.raises(ValueError, match=f"{named}.*2 blocks of 4 hold positions 0 to 7"):
        slot_mapping([1, 2], positions, 4)


def test_a_negative_block_number_is_refused():
    with pytest.raises(ValueError, match="negative block number"):
        slot_mapping([1, -1], [0], 4)


def test_write_reaches_its_slots_and_no_others():
    cache = cache_with_unique_values()
    before = cache.gpu.clone()
    key, value = tokens(3, 1e6), tokens(3, 2e6)
    cache.write(1, key, value, torch.tensor([7, 0, 23]))
    for index, (block, offset) in enumerate([(1, 3), (0, 0), (5, 3)]):
        assert torch.equal(cache.key_cache(1)[block, offset], key[index])
        assert torch.equal(cache.value_cache(1)[block, offset], value[index])
        before[1, 0, block, offset], before[1, 1, block, offset] = key[index], value[index]
    assert torch.equal(cache.gpu, before)


def test_padding_is_never_written():
    cache = cache_with_unique_values()
    before = cache.gpu.clone()
    cache.write(0, tokens(2), tokens(2), torch.tensor([-1, -1]))
    assert torch.equal(cache.gpu, before)
    cache.write(0, tokens(2), tokens(2), torch.tensor([-1, 4]))
    changed = (cache.gpu != before).any(dim=-1).any(dim=-1).nonzero().tolist()
    assert changed == [[0, 0, 1, 0], [0, 1, 1, 0]]


def test_a_slot_of_another_block_size_is_refused():
    """D11: 75849 is slot 9 of block 4740 at 16 tokens a block; at 4 it would be block 18962."""
    cache = KVCache(1, 4741, 0, 4, 1, 1, torch.float32, "cpu")
    with pytest.raises(ValueError, match="slot 75849 is in block 18962, the GPU pool holds 4741 blocks of 4"):
        cache.write(0, torch.ones(1, 1, 1), torch.ones(1, 1, 1), slot_mapping([4740], [9], 16))
    assert not cache.gpu.any()


@pytest.mark.parametrize("slot", [24, -2])
def test_a_slot_outside_the_pool_writes_nothing(slot):
    cache = cache_with_unique_values()
    before = cache.gpu.clone()
    with pytest.raises(ValueError, match=f"slot {slot} .*holds 6 blocks"):
        cache.write(0, tokens(2), tokens(2), torch.tensor([0, slot]))
    assert torch.equal(cache.gpu, before)


def test_shapes_that_do_not_match_are_refused():
    cache = cache_with_unique_values()
    with pytest.raises(ValueError, match=r"both must be \[1, 2, 5\]"):
        cache.write(0, tokens(2), tokens(2), torch.tensor([0]))
    with pytest.raises(ValueError, match=r"value is \[1, 2, 5\], both must be \[2, 2, 5\]"):
        cache.write(0, tokens(2), tokens(1), torch.tensor([0, 1]))


def test_keys_and_values_are_refused_before_either_is_written():
    cache = cache_with_unique_values()
    before = cache.gpu.clone()
    for key, value in ((tokens(2), tokens(1)), (tokens(1), tokens(2)), (tokens(2), tokens(2)[:, :1])):
        with pytest.raises(ValueError, match=r"both must be \[2, 2, 5\]"):
            cache.write(0, key, value, torch.tensor([0, 1]))
    assert torch.equal(cache.gpu, before)


@pytest.mark.parametrize("slots", [[7, 0, 23], [-1, 4, -1, 5], [-1], []])
def test_slots_checked_once_serve_every_layer(slots):
    by_mapping, by_checked = cache_with_unique_values(), cache_with_unique_values()
    checked = by_checked.check_slots(torch.tensor(slots, dtype=torch.int64))
    for layer in range(LAYERS):
        key, value = tokens(len(slots), 1e6 * layer), tokens(len(slots), 2e6 * layer)
        by_mapping.write(layer, key, value, torch.tensor(slots, dtype=torch.int64))
        by_checked.write(layer, key, value, checked)
    assert torch.equal(by_checked.gpu, by_mapping.gpu)
    with pytest.raises(ValueError, match=f"both must be \\[{len(slots)}, 2, 5\\]"):
        by_checked.write(0, tokens(len(slots) + 1), tokens(len(slots) + 1), checked)


def test_checking_refuses_what_writing_would():
    cache = cache_with_unique_values()
    with pytest.raises(ValueError, match="slot 24 is in block 6, the GPU pool holds 6 blocks of 4 slots"):
        cache.check_slots(torch.tensor([0, -1, 24, 99]))


@pytest.mark.parametrize(
    ("slots", "form"),
    [
        (torch.tensor([[0, 1]]), r"\[1, 2\] of torch.int64"),
        (torch.tensor(3), r"\[\] of torch.int64"),
        (torch.tensor([0.5]), r"\[1\] of torch.float32"),
        (torch.tensor([True]), r"\[1\] of torch.bool"),
    ],
)
def test_slots_in_another_form_are_refused(slots, form):
    with pytest.raises(ValueError, match=rf"slot_mapping is {form}, it must be \[num_tokens\] of torch.int64"):
        cache_with_unique_values().check_slots(slots)


def test_slots_of_32_bits_are_taken():
    cache = cache_with_unique_values()
    cache.write(0, tokens(2), tokens(2), torch.tensor([1, 5], dtype=torch.int32))
    assert torch.equal(cache.key_cache(0)[[0, 1], [1, 1]], tokens(2))


def test_keys_of_another_dtype_become_the_pools():
    cache = KVCache(1, 2, 0, BLOCK_SIZE, KV_HEADS, HEAD_DIM, torch.bfloat16, "cpu")
    cache.write(0, tokens(1), tokens(1), torch.tensor([5]))
    assert torch.equal(cache.value_cache(0)[1, 1], tokens(1)[0].bfloat16())


def test_keys_may_be_a_view_of_a_larger_product():
    cache = cache_with_unique_values()
    product = torch.rand(3, 3 * KV_HEADS, HEAD_DIM)
    key, value = product[:, :KV_HEADS], product[:, 2 * KV_HEADS :]
    cache.write(2, key, value, torch.tensor([4, 5, 6]))
    assert torch.equal(cache.key_cache(2)[1, :3], key)
    assert torch.equal(cache.value_cache(2)[1, :3], value)


def test_copy_takes_keys_and_values_of_every_layer():
    cache = cache_with_unique_values()
    expected = cache.gpu.clone()
    for layer in range(LAYERS):
        for which in range(2):
            expected[layer, which, 4] = expected[layer, which, 1]
    cache.copy([(1, 4)])
    assert torch.equal(cache.gpu, expected)


def test_copies_read_before_any_of_them_writes():
    cache = cache_with_unique_values()
    before = cache.gpu.clone()
    cache.copy([(0, 1), (1, 0), (2, 3), (3, 4), (2, 5)])
    for source, destination in [(0, 1), (1, 0), (2, 3), (3, 4), (2, 5)]:
        assert torch.equal(cache.gpu[:, :, destination], before[:, :, source])
    cache.copy([])


def test_swap_there_and_back_restores_every_number():
    cache = cache_with_unique_values()
    gpu, cpu = cache.gpu.clone(), cache.cpu.clone()
    cache.swap_out([(5, 0), (2, 4)])
    assert torch.equal(cache.cpu[:, :, [0, 4]], gpu[:, :, [5, 2]])
    assert torch.equal(cache.cpu[:, :, [1, 2, 3]], cpu[:, :, [1, 2, 3]])
    assert torch.equal(cache.gpu, gpu)
    cache.gpu.fill_(float("nan"))
    cache.swap_in([(4, 1), (0, 3)])
    assert torch.equal(cache.gpu[:, :, [1, 3]], gpu[:, :, [2, 5]])
    assert cache.gpu[:, :, [0, 2, 4, 5]].isnan().all()


@pytest.mark.parametrize(
    ("call", "pairs", "message"),
    [
        ("copy", [(0, 1), (6, 2)], "block 6 is not in the GPU pool, which holds blocks 0 to 5"),
        ("copy", [(0, 1), (2, -1)], "block -1 is not in the GPU pool"),
        ("copy", [(0, 1), (2, 1)], "GPU block 1 is the destination of more than one pair"),
        ("swap_out", [(0, 5)], "block 5 is not in the CPU pool, which holds blocks 0 to 4"),
        ("swap_out", [(0, 1), (2, 1)], "CPU block 1 is the destination"),
        ("swap_in", [(5, 0)], "block 5 is not in the CPU pool"),
        ("swap_in", [(0, 6)], "block 6 is not in the GPU pool"),
    ],
)
def test_an_impossible_copy_changes_nothing(call, pairs, message):
    cache = cache_with_unique_values()
    gpu, cpu = cache.gpu.clone(), cache.cpu.clone()
    with pytest.raises(ValueError, match=message):
        getattr(cache, call)(pairs)
    assert torch.equal(cache.gpu, gpu)
    assert torch.equal(cache.cpu, cpu)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((0, 1, 1, 4, 1, 1), "num_layers is 0, it must be 1 or more"),
        ((1, -1, 1, 4, 1, 1), "num_gpu_blocks is -1, it must be 0 or more"),
        ((1, 1, -1, 4, 1, 1), "num_cpu_blocks is -1, it must be 0 or more"),
        ((1, 1, 1, 0, 1, 1), "block_size is 0, it must be 1 or more"),
        ((1, 1, 1, 4, 0, 1), "num_kv_heads is 0, it must be 1 or more"),
        ((1, 1, 1, 4, 1, 0), "head_dim is 0, it must be 1 or more"),
    ],
)
def test_impossible_sizes_are_refused(sizes, message):
    with pytest.raises(ValueError, match=message):
        KVCache(*sizes, torch.float32, "cpu")


@pytest.mark.parametrize("num_blocks", [10**12, 10**26])
def test_pools_that_memory_cannot_hold_are_refused(num_blocks):
    """3 layers of 4 tokens, 2 heads of 5 float32 numbers, keys and values: 960 bytes a block."""
    shape = (BLOCK_SIZE, KV_HEADS, HEAD_DIM, torch.float32, "cpu")
    message = f"{num_blocks} blocks take {num_blocks * 960} bytes, more than there is: lower "
    with pytest.raises(ValueError, match=message + "num_gpu_blocks_override or gpu_memory_utilization"):
        KVCache(LAYERS, num_blocks, 0, *shape)
    with pytest.raises(ValueError, match=message + "swap_space"):
        KVCache(LAYERS, 1, num_blocks, *shape)


def test_a_missing_device_is_not_a_lack_of_memory():
    with pytest.raises(RuntimeError, match="(?i)fpga"):
        KVCache(1, 1, 1, 1, 1, 1, torch.float32, "fpga")


def test_pools_without_blocks_hold_nothing():
    cache = KVCache(LAYERS, 0, 0, BLOCK_SIZE, KV_HEADS, HEAD_DIM, torch.float32, "cpu")
    assert cache.gpu.numel() == cache.cpu.numel() == 0
    cache.write(0, tokens(1), tokens(1), torch.tensor([-1]))
    cache.swap_out([])
    with pytest.raises(ValueError, match="slot 0 is in block 0, the GPU pool holds 0 blocks"):
        cache.write(0, tokens(1), tokens(1), torch.tensor([0]))


def test_bytes_per_block_is_what_a_block_takes():
    cache = KVCache(LAYERS, 7, 0, BLOCK_SIZE, KV_HEADS, HEAD_DIM, torch.float16, "cpu")
    counted = KVCache.bytes_per_block(LAYERS, BLOCK_SIZE, KV_HEADS, HEAD_DIM, torch.float16)
    assert counted * 7 == cache.gpu.nbytes

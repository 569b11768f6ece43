"""Chapter 9's plain functions do what the fast cache does, on random inputs and in its own strided views."""

from __future__ import annotations

import random

import pytest
import torch

import refimpl
from refimpl import CacheConfig, KVCache
from refimpl.device import memory, plain_cache

SEEDS = range(40)
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def random_cache(rng: random.Random) -> KVCache:
    """A small cache whose pools hold random numbers."""
    cache = KVCache(
        num_layers=rng.randint(1, 3),
        num_gpu_blocks=rng.randint(2, 7),
        num_cpu_blocks=rng.randint(2, 7),
        block_size=rng.randint(1, 5),
        num_kv_heads=rng.randint(1, 3),
        head_dim=rng.randint(1, 4),
        dtype=rng.choice(DTYPES),
        device="cpu",
    )
    cache.gpu.copy_(torch.rand(cache.gpu.shape, generator=torch.Generator().manual_seed(rng.randrange(1000))))
    cache.cpu.copy_(torch.rand(cache.cpu.shape, generator=torch.Generator().manual_seed(rng.randrange(1000))))
    return cache


def random_pairs(rng: random.Random, num_sources: int, num_destinations: int) -> list[tuple[int, int]]:
    """Pairs with distinct destinations; in one pool they form chains and circles."""
    destinations = rng.sample(range(num_destinations), rng.randint(0, num_destinations))
    return [(rng.randrange(num_sources), destination) for destination in destinations]


@pytest.mark.parametrize("seed", SEEDS)
def test_as_many_blocks_fit(seed: int) -> None:
    rng = random.Random(seed)
    total, utilization, block_bytes = rng.randint(1000, 10**11), rng.uniform(0.05, 1.0), rng.randint(1, 10**6)
    model, step = rng.randint(0, total // 2), rng.randint(0, total // 4)
    config = CacheConfig(gpu_memory_utilization=utilization)
    device = memory.DeviceMemory(total, free=total - model, model=model, step=step)
    try:
        expected = memory.num_gpu_blocks(config, block_bytes, device)
    except ValueError:
        with pytest.raises(ValueError, match=f"a block takes {block_bytes} bytes"):
            plain_cache.num_gpu_blocks(total, utilization, model, step, block_bytes)
    else:
        assert plain_cache.num_gpu_blocks(total, utilization, model, step, block_bytes) == expected


@pytest.mark.parametrize("seed", SEEDS)
def test_slots_are_the_same(seed: int) -> None:
    rng = random.Random(seed)
    block_size, table = rng.randint(1, 20), [rng.randrange(2**33) for _ in range(rng.randint(0, 6))]
    positions = [rng.randrange(-1, len(table) * block_size) for _ in range(rng.randint(0, 30))]
    expected = refimpl.slot_mapping(table, positions, block_size)
    slots = plain_cache.slot_mapping(table, positions, block_size)
    assert slots.dtype == torch.int64
    assert torch.equal(slots, expected)
    for bad in (-2, len(table) * block_size):
        for function in (refimpl.slot_mapping, plain_cache.slot_mapping):
            with pytest.raises(ValueError, match=f"position {bad} has no slot"):
                function(table, [*positions, bad], block_size)


@pytest.mark.parametrize("seed", SEEDS)
def test_writes_are_the_same(seed: int) -> None:
    rng = random.Random(seed)
    cache, layer = random_cache(rng), 0
    slots = rng.sample(range(cache.gpu.shape[2] * cache.block_size), rng.randint(0, cache.block_size))
    slots += [-1] * rng.randint(0, 2)
    rng.shuffle(slots)
    key, value = torch.rand(2, len(slots), *cache.gpu.shape[-2:])
    plain = cache.gpu.clone(memory_format=torch.preserve_format)
    assert plain.stride() == cache.gpu.stride()
    mapping = torch.tensor(slots, dtype=torch.int64)
    cache.write(layer, key, value, mapping)
    plain_cache.reshape_and_cache(key, value, plain[layer, 0], plain[layer, 1], mapping)
    assert torch.equal(plain, cache.gpu)


@pytest.mark.parametrize("seed", SEEDS)
def test_copies_are_the_same(seed: int) -> None:
    rng = random.Random(seed)
    cache = random_cache(rng)
    pairs = random_pairs(rng, cache.gpu.shape[2], cache.gpu.shape[2])
    plain = cache.gpu.clone(memory_format=torch.preserve_format)
    cache.copy(pairs)
    plain_cache.copy_blocks(plain, pairs)
    assert torch.equal(plain, cache.gpu)


@pytest.mark.parametrize("seed", SEEDS)
def test_swaps_are_the_same(seed: int) -> None:
    rng = random.Random(seed)
    cache = random_cache(rng)
    gpu, cpu = cache.gpu.clone(), cache.cpu.clone()
    out = random_pairs(rng, gpu.shape[2], cpu.shape[2])
    back = random_pairs(rng, cpu.shape[2], gpu.shape[2])
    cache.swap_out(out)
    plain_cache.swap_blocks(gpu, cpu, out)
    assert torch.equal(cpu, cache.cpu)
    cache.swap_in(back)
    plain_cache.swap_blocks(cpu, gpu, back)
    assert torch.equal(gpu, cache.gpu)


def test_blocks_and_slots_outside_the_pool_are_an_error() -> None:
    kv_cache = torch.zeros(1, 2, 3, 2, 1, 1)
    ones = torch.ones(1, 1, 1)
    with pytest.raises(IndexError):
        plain_cache.copy_blocks(kv_cache, [(3, 0)])
    with pytest.raises(IndexError):
        plain_cache.swap_blocks(kv_cache, kv_cache.clone(), [(0, 3)])
    with pytest.raises(IndexError):
        plain_cache.reshape_and_cache(ones, ones, kv_cache[0, 0], kv_cache[0, 1], torch.tensor([6]))

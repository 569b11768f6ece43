"""How many blocks fit: never more than memory holds, and a refusal names the number that would have to change."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest
import torch

from refimpl import CacheConfig
from refimpl.device.memory import (
    GIB,
    HOST_KV_BYTES,
    DeviceMemory,
    device_memory,
    host_memory,
    num_cpu_blocks,
    num_gpu_blocks,
)

SMOLLM_BLOCK = 737280  # 30 layers, keys and values, 16 tokens, 3 heads of 64 float32 numbers


def test_blocks_fill_the_share_of_the_memory():
    memory = device_memory(torch.device("cpu"))
    assert (memory.total, memory.free, memory.model, memory.step) == (1 << 30, 1 << 30, 0, 0)
    assert num_gpu_blocks(CacheConfig(), SMOLLM_BLOCK, memory) == 1310  # 0.9 GiB: 966367641 bytes
    assert num_gpu_blocks(CacheConfig(gpu_memory_utilization=1), 1 << 20, memory) == 1024


def test_model_and_step_come_out_of_the_share():
    config = CacheConfig(gpu_memory_utilization=0.5)
    assert num_gpu_blocks(config, 10, DeviceMemory(total=1000, free=1000)) == 50
    assert num_gpu_blocks(config, 10, DeviceMemory(total=1000, free=800, model=200)) == 30
    assert num_gpu_blocks(config, 10, DeviceMemory(total=1000, free=800, model=200, step=95)) == 20


def test_blocks_stop_at_what_others_leave_free():
    """Half of the card is ours by the flag, and another program holds most of it: a step must still fit."""
    memory = DeviceMemory(total=1000, free=150, model=200, step=40)
    assert num_gpu_blocks(CacheConfig(gpu_memory_utilization=0.5), 10, memory) == 11


@pytest.mark.parametrize(
    ("utilization", "memory", "message"),
    [
        (
            0.000005,
            DeviceMemory(HOST_KV_BYTES, HOST_KV_BYTES),
            r"a block of 16 tokens takes 6144 bytes, the cache has 5368: lower block_size, or raise "
            r"gpu_memory_utilization \(5e-06\)",
        ),
        (0.5, DeviceMemory(20000, 9000, model=11000), "the cache has 0: lower block_size, or raise gpu_mem"),
        (0.9, DeviceMemory(20000, 7000, model=6000, step=900), "has 6100: .* free some of the 7000 bytes held besides"),
    ],
)
def test_memory_without_room_for_a_block_is_refused(utilization, memory, message):
    with pytest.raises(ValueError, match=message):
        num_gpu_blocks(CacheConfig(gpu_memory_utilization=utilization), 6144, memory)


def test_a_block_that_just_fits_is_one_block():
    assert num_gpu_blocks(CacheConfig(gpu_memory_utilization=1), 6144, DeviceMemory(6144, 6144)) == 1


def test_swap_space_is_counted_in_gib():
    assert num_cpu_blocks(CacheConfig(swap_space=4), 1 << 20, 1, host_bytes=4 * GIB) == 4096
    assert num_cpu_blocks(CacheConfig(swap_space=0.5), SMOLLM_BLOCK, 1, host_bytes=GIB) == 728
    assert num_cpu_blocks(CacheConfig(swap_space=0), SMOLLM_BLOCK, 100, host_bytes=GIB) == 0


def test_left_out_swap_space_is_twice_the_gpu_blocks():
    assert num_cpu_blocks(CacheConfig(), SMOLLM_BLOCK, 1310, host_bytes=GIB) == 2620
    assert num_cpu_blocks(CacheConfig(), 1 << 20, 100, host_bytes=2 * GIB, pinned=True) == 200


def test_left_out_swap_space_pins_at_most_half_of_the_host():
    """What torch makes of the pool's size, the next power of two, is within the half, too."""
    for host_gib, blocks in ((20, 8192), (16, 8192), (15.9, 4096), (0, 0)):
        got = num_cpu_blocks(CacheConfig(), 1 << 20, 10_000, host_bytes=int(host_gib * GIB), pinned=True)
        assert got == blocks, f"{host_gib} GiB to spare"


@pytest.mark.parametrize(
    ("swap_space", "pinned", "message"),
    [
        (10.01, False, r"swap_space is 10.01 GiB, the host has 10.00 GiB to spare: lower swap_space to 10.0 or less"),
        (9, True, r"swap_space is 9 GiB, .* and a pinned pool takes a power of two: lower swap_space to 8.0 or less"),
        (float("inf"), False, "swap_space is inf GiB"),
    ],
)
def test_swap_space_that_the_host_cannot_hold_is_refused(swap_space, pinned, message):
    config = CacheConfig(swap_space=swap_space)
    with pytest.raises(ValueError, match=message):
        num_cpu_blocks(config, SMOLLM_BLOCK, 1, host_bytes=10 * GIB, pinned=pinned)


def test_the_swap_space_that_a_refusal_names_is_taken():
    host_bytes = 10 * GIB - 1
    with pytest.raises(ValueError, match="lower swap_space to 9.99 or less"):
        num_cpu_blocks(CacheConfig(swap_space=10), SMOLLM_BLOCK, 1, host_bytes=host_bytes)
    assert num_cpu_blocks(CacheConfig(swap_space=9.99), GIB, 1, host_bytes=host_bytes) == 9


def test_host_memory_is_what_the_system_can_give(tmp_path):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 9000 kB\nMemFree: 5 kB\nMemAvailable:    7000 kB\nHugePages: 0\n")
    assert host_memory(tmp_path) == 7000 * 1024


@pytest.mark.parametrize(
    ("limit", "expected"), [("max", 7000 * 1024), ("90000000", 7000 * 1024), ("5000000", 4000000), ("900000", 0)]
)
def test_host_memory_ends_at_the_containers_limit(tmp_path, limit, expected):
    for path, text in (
        ("proc/meminfo", "MemAvailable: 7000 kB\n"),
        ("sys/fs/cgroup/memory.max", f"{limit}\n"),
        ("sys/fs/cgroup/memory.current", "1000000\n"),
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert host_memory(tmp_path) == expected


def test_host_memory_without_proc_is_what_is_built_in(tmp_path):
    assert host_memory(tmp_path) >= host_memory() > 0


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device: its memory cannot be read")
def test_the_memory_of_a_cuda_device_is_read():
    memory = device_memory(torch.device("cuda"), model_bytes=3, step_bytes=4)
    assert 0 < memory.free <= memory.total
    assert (memory.model, memory.step) == (3, 4)


STEPS = """
import ctypes, resource
from refimpl.device.memory import keep_freed_memory
{keep}
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
def step():
    pieces = [libc.malloc(6 << 20) for _ in range(4)]
    for piece in pieces:
        libc.memset(piece, 1, 6 << 20)
    for piece in reversed(pieces):
        libc.free(piece)
for _ in range(3):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library than glibc, which this is about")
def test_a_step_takes_no_memory_anew_from_the_system():
    """24 MiB, freed and taken ten times: 61,440 pages of 4 KiB when glibc gives them back in between."""
    runs = [[sys.executable, "-c", STEPS.format(keep=keep)] for keep in ("", "keep_freed_memory()")]
    taken, kept = (int(subprocess.run(run, capture_output=True, check=True).stdout) for run in runs)
    assert kept < 1000 < taken

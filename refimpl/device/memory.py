"""How many blocks fit: the sizes of the two pools, worked out from memory.

The sizes are functions of numbers alone; reading the numbers off the machine is apart, in `device_memory` and
`host_memory`. A size is never more than what is there: too little is an error that says which number to change.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from refimpl.config import CacheConfig

GIB = 1 << 30
HOST_KV_BYTES = 1 * GIB  # without a GPU, what the pool takes its share of: laptops have this to spare


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """The memory that model and cache share, in bytes.

    total: all there is. free: what nobody holds, the model being loaded and no step under way. model: what the model
    holds. step: what a step takes besides, at its peak, and what the cache takes for swaps (`STAGING_BLOCKS` blocks).
    """

    total: int
    free: int
    model: int = 0
    step: int = 0


def num_gpu_blocks(config: CacheConfig, block_bytes: int, memory: DeviceMemory) -> int:
    """Blocks of the GPU pool: what the model and a step leave of the share `gpu_memory_utilization`.

    Args:
        config: block_size and gpu_memory_utilization.
        block_bytes: bytes of a block over all layers, `KVCache.bytes_per_block`.
        memory: of the device.

    Raises:
        ValueError: when not a single block fits.

    >>> memory = DeviceMemory(total=1000, free=800, model=150, step=50)
    >>> num_gpu_blocks(CacheConfig(gpu_memory_utilization=0.6), 100, memory)
    4

    Source: vLLM 0.5.4, `vllm/worker/worker.py`, `determine_num_available_blocks`.
    """
    share = int(config.gpu_memory_utilization * memory.total) - memory.model - memory.step
    unused = memory.free - memory.step
    budget = max(min(share, unused), 0)
    if budget < block_bytes:
        advice = f"raise gpu_memory_utilization ({config.gpu_memory_utilization})"
        if unused < share:
            advice = f"free some of the {memory.total - memory.free - memory.model} bytes held besides the model"
        raise ValueError(
            f"a block of {config.block_size} tokens takes {block_bytes} bytes, the cache has {budget}: lower "
            f"block_size, or {advice}"
        )
    return budget // block_bytes


def num_cpu_blocks(
    config: CacheConfig, block_bytes: int, num_gpu_blocks: int, host_bytes: int, *, pinned: bool = False
) -> int:
    """Blocks of the CPU pool: as many as `swap_space` holds; when it is None, twice those of the GPU pool.

    A pinned pool takes its memory at once, so twice is then only a wish, and half of what the host has to spare is
    the limit. A pool that is not pinned takes memory as blocks are swapped out. And pinned memory comes in powers of
    two: torch rounds up (https://github.com/pytorch/pytorch/issues/150517), and it is the rounded size that must fit.

    Args:
        config: block_size and swap_space, in GiB.
        block_bytes: bytes of a block over all layers, `KVCache.bytes_per_block`.
        num_gpu_blocks: blocks of the GPU pool.
        host_bytes: host memory to spare, `host_memory()`.
        pinned: whether the pool is pinned: on CUDA.

    Raises:
        ValueError: for a swap_space that host memory cannot hold.

    >>> num_cpu_blocks(CacheConfig(swap_space=1), 737280, 1310, host_bytes=8 * GIB)
    1456
    >>> num_cpu_blocks(CacheConfig(), 737280, 1310, host_bytes=3 * GIB, pinned=True)  # 1 GiB, not 1.8
    1456

    Source: vLLM 0.5.4, `vllm/worker/worker.py`, `determine_num_available_blocks`; its swap_space is 4 when left out.
    """
    if config.swap_space is None:
        wanted = 2 * num_gpu_blocks
        return min(wanted, _power_of_two_within(host_bytes // 2) // block_bytes) if pinned else wanted
    limit = _power_of_two_within(host_bytes) if pinned else host_bytes
    if config.swap_space * GIB > limit:
        why = ", and a pinned pool takes a power of two" if pinned else ""
        raise ValueError(
            f"swap_space is {config.swap_space} GiB, the host has {host_bytes / GIB:.2f} GiB to spare{why}: lower "
            f"swap_space to {100 * limit // GIB / 100} or less"
        )
    return int(config.swap_space * GIB) // block_bytes


def device_memory(device: torch.device, model_bytes: int = 0, step_bytes: int = 0) -> DeviceMemory:
    """The memory that the cache has a share of: a CUDA device's own, and `HOST_KV_BYTES` elsewhere.

    Args:
        device: where the model is, loaded.
        model_bytes: on CUDA, `torch.cuda.memory_allocated()` before a step of full size has been tried.
        step_bytes: by how much `torch.cuda.max_memory_allocated()` exceeds that afterwards, and what swaps take.
    """
    if device.type != "cuda":
        return DeviceMemory(total=HOST_KV_BYTES, free=HOST_KV_BYTES)
    torch.cuda.empty_cache()  # what the trial step has given back is free again, but torch keeps it
    free, total = torch.cuda.mem_get_info(device)
    return DeviceMemory(total, free, model_bytes, step_bytes)


def host_memory(root: Path = Path("/")) -> int:
    """Bytes of host memory to spare: what the system can give without swapping, within the container's limit.

    `root` is where `proc` and `sys` are. Without them, as on macOS: all the memory that is built in.
    """
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
        available = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except OSError:
        available = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with suppress(OSError):  # no container
        limit = (root / "sys/fs/cgroup/memory.max").read_text().strip()
        if limit != "max":
            available = min(available, int(limit) - int((root / "sys/fs/cgroup/memory.current").read_text()))
    return max(available, 0)


def keep_freed_memory() -> None:
    """Let the C library keep what a step frees for the next step, instead of taking it from the system page by page.

    glibc gives back what lies free beyond twice the largest piece that it has ever been given back, up to 32 MiB of
    it: here it is given one. Elsewhere this does nothing. (man 3 mallopt, M_MMAP_THRESHOLD.)
    """
    torch.empty(31 << 20, dtype=torch.uint8)


def _power_of_two_within(limit: int) -> int:
    """The largest power of two up to `limit`; 0 when there is none."""
    return 1 << (limit.bit_length() - 1) if limit > 0 else 0

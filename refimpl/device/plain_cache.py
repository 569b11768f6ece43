"""What the KV cache does, in its plainest form: the functions of chapter 9, each one thought after the other.

`memory.py` and `kv_cache.py` do the same, faster and with more questions asked first. Caches here may have any strides,
and nothing but what a function is asked to change changes.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def num_gpu_blocks(total: int, utilization: float, model: int, step: int, block_bytes: int) -> int:
    """Blocks of the GPU pool: what the model and a step leave of the share `utilization` of all memory.

    Args:
        total: bytes of the device, whoever holds them.
        utilization: the share of them that is ours, above 0 and up to 1.
        model: bytes of the weights.
        step: bytes that a step takes besides, at its peak.
        block_bytes: bytes of one block, keys and values, over all layers.

    Raises:
        ValueError: when not a single block fits.

    >>> num_gpu_blocks(total=1000, utilization=0.9, model=170, step=50, block_bytes=100)
    6

    Source: vLLM 0.5.4, `vllm/worker/worker.py`, `determine_num_available_blocks`.
    """
    budget = int(utilization * total) - model - step
    if budget < block_bytes:
        raise ValueError(
            f"a block takes {block_bytes} bytes, and {budget} are left: {utilization} of {total} bytes, less {model} "
            f"for the model and {step} for a step"
        )
    return budget // block_bytes


def slot_mapping(block_table: list[int], positions: Sequence[int], block_size: int) -> Tensor:
    """The slots in which the tokens at `positions` of one sequence keep their keys and values.

    Args:
        block_table: the sequence's block numbers, logical block 0 first.
        positions: token positions, counted from 0; -1 is padding.
        block_size: tokens a block, the same as the cache's.

    Returns:
        [len(positions)], int64, -1 where the position is.

    Raises:
        ValueError: for a position below -1 or behind the last block.

    >>> slot_mapping([5, 2], [0, 3, 4, -1], block_size=4).tolist()
    [20, 23, 8, -1]

    Source: vLLM 0.5.4, `vllm/attention/backends/utils.py`, `compute_slot_mapping`.
    """
    capacity = len(block_table) * block_size
    slots = []
    for position in positions:
        if not -1 <= position < capacity:
            raise ValueError(f"position {position} has no slot: the table's {len(block_table)} blocks hold {capacity}")
        if position == -1:
            slots.append(-1)
        else:
            slots.append(block_table[position // block_size] * block_size + position % block_size)
    return torch.tensor(slots, dtype=torch.int64)


def reshape_and_cache(key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slot_mapping: Tensor) -> None:
    """Write the keys and values of some tokens into their slots of one layer's caches, in place.

    Args:
        key, value: [num_tokens, num_kv_heads, head_dim].
        key_cache, value_cache: [num_blocks, block_size, num_kv_heads, head_dim], of any strides and their own dtype.
        slot_mapping: [num_tokens], int64, distinct slots; a token whose slot is -1 is padding and is not written.

    Raises:
        IndexError: for a slot outside the caches.

    >>> key_cache, value_cache = torch.zeros(2, 3, 2, 1, 1)
    >>> reshape_and_cache(
    ...     torch.ones(2, 1, 1), torch.ones(2, 1, 1), key_cache, value_cache, torch.tensor([3, -1])
    ... )
    >>> key_cache.flatten().tolist()
    [0.0, 0.0, 0.0, 1.0, 0.0, 0.0]

    Source: vLLM 0.5.4, `csrc/cache_kernels.cu`, `reshape_and_cache_flash_kernel`.
    """
    block_size = key_cache.shape[1]
    written = slot_mapping >= 0
    slots = slot_mapping[written]
    blocks, offsets = slots // block_size, slots % block_size
    key_cache[blocks, offsets] = key[written].to(key_cache.dtype)
    value_cache[blocks, offsets] = value[written].to(value_cache.dtype)


def copy_blocks(kv_cache: Tensor, pairs: Sequence[tuple[int, int]]) -> None:
    """Copy blocks inside a pool, in place: keys and values of every layer.

    The pairs (source, destination) are meant as one: a block that is source of one pair and destination of another is
    read before it is overwritten.

    Args:
        kv_cache: [num_layers, 2, num_blocks, block_size, num_kv_heads, head_dim], of any strides.
        pairs: block numbers, no destination twice.

    Raises:
        IndexError: for a block outside the pool.

    >>> kv_cache = torch.arange(3.0).view(1, 1, 3, 1, 1, 1).repeat(1, 2, 1, 1, 1, 1)
    >>> copy_blocks(kv_cache, [(0, 1), (1, 2)])
    >>> kv_cache[0, 0].flatten().tolist()
    [0.0, 0.0, 1.0]

    Source: vLLM 0.5.4, `csrc/cache_kernels.cu`, `copy_blocks_kernel`.
    """
    blocks = [kv_cache[:, :, source].clone() for source, _ in pairs]
    for (_, destination), block in zip(pairs, blocks, strict=True):
        kv_cache[:, :, destination] = block


def swap_blocks(source: Tensor, destination: Tensor, pairs: Sequence[tuple[int, int]]) -> None:
    """Copy blocks from one pool into another, in place: keys and values of every layer, out to the CPU or back.

    Args:
        source, destination: [num_layers, 2, num_blocks, block_size, num_kv_heads, head_dim], of any strides, equal in
            all sizes but num_blocks.
        pairs: (block of the source, block of the destination), no destination twice.

    Raises:
        IndexError: for a block outside its pool.

    >>> gpu, cpu = torch.ones(1, 2, 3, 1, 1, 1), torch.zeros(1, 2, 2, 1, 1, 1)
    >>> swap_blocks(gpu, cpu, [(2, 0)])
    >>> cpu[0, 1].flatten().tolist()
    [1.0, 0.0]

    Source: vLLM 0.5.4, `csrc/cache_kernels.cu`, `swap_blocks`.
    """
    for source_block, destination_block in pairs:
        destination[:, :, destination_block] = source[:, :, source_block]

"""The keys and values themselves: one pool of blocks on the compute device and one in host memory, for every layer.

A block number is an index into a pool and a slot is `block * block_size + offset`; whose tokens lie there is for the
block manager to know. A request for a block or slot outside its pool, or for an impossible copy, changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

PADDING_SLOT = -1


class KVCache:
    """Keys and values of every layer, in blocks.

    Owns `gpu` and `cpu`, two tensors [num_layers, 2, num_blocks, block_size, num_kv_heads, head_dim] in which index 0
    of the second axis is the keys and 1 the values. "GPU" names the pool that attention reads, on whatever `device` it
    is; the CPU pool holds what has been swapped out. Fresh blocks hold zeros, used ones whatever was written last.

    Args:
        num_layers, num_kv_heads, head_dim: shape of the model.
        num_gpu_blocks, num_cpu_blocks: sizes of the two pools, in blocks.
        block_size: tokens a block.
        dtype: float32, float16 or bfloat16.
        device: where the GPU pool lies.

    Raises:
        ValueError: for a negative pool, or another size below 1.

    >>> cache = KVCache(1, 4, 0, block_size=2, num_kv_heads=1, head_dim=3, dtype=torch.float32, device="cpu")
    >>> key = torch.ones(2, 1, 3)
    >>> cache.write(0, key, 2 * key, torch.tensor([7, -1]))
    >>> cache.copy([(3, 0)])
    >>> cache.value_cache(0)[0, 1, 0].tolist()
    [2.0, 2.0, 2.0]

    Source: vLLM 0.5.4, `vllm/worker/cache_engine.py`, `CacheEngine`; PagedAttention paper, section 4.
    """

    def __init__(
        self,
        num_layers: int,
        num_gpu_blocks: int,
        num_cpu_blocks: int,
        block_size: int,
        num_kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device | str,
    ) -> None:
        for name, size, least in (
            ("num_layers", num_layers, 1),
            ("num_gpu_blocks", num_gpu_blocks, 0),
            ("num_cpu_blocks", num_cpu_blocks, 0),
            ("block_size", block_size, 1),
            ("num_kv_heads", num_kv_heads, 1),
            ("head_dim", head_dim, 1),
        ):
            if size < least:
                raise ValueError(f"{name} is {size}, it must be {least} or more")
        self.block_size = block_size
        block_shape = (block_size, num_kv_heads, head_dim)
        self.gpu = torch.zeros((num_layers, 2, num_gpu_blocks, *block_shape), dtype=dtype, device=device)
        self.cpu = torch.zeros((num_layers, 2, num_cpu_blocks, *block_shape), dtype=dtype, device="cpu")

    @staticmethod
    def bytes_per_block(num_layers: int, block_size: int, num_kv_heads: int, head_dim: int, dtype: torch.dtype) -> int:
        """Bytes of one block over all layers, keys and values.

        >>> KVCache.bytes_per_block(30, 16, 3, 64, torch.float32)
        737280
        """
        return num_layers * 2 * block_size * num_kv_heads * head_dim * dtype.itemsize

    def key_cache(self, layer: int) -> Tensor:
        """The layer's keys in the GPU pool, a view: [num_gpu_blocks, block_size, num_kv_heads, head_dim]."""
        return self.gpu[layer, 0]

    def value_cache(self, layer: int) -> Tensor:
        """The layer's values in the GPU pool, a view of the same shape as the keys."""
        return self.gpu[layer, 1]

    def write(self, layer: int, key: Tensor, value: Tensor, slot_mapping: Tensor) -> None:
        """Put the keys and values of some tokens into their slots of the GPU pool.

        Args:
            layer: index of the layer.
            key, value: [num_tokens, num_kv_heads, head_dim].
            slot_mapping: [num_tokens], int64, distinct slots; a token whose slot is -1 is padding and is not written.

        Raises:
            ValueError: for shapes that do not match, or a slot outside the pool.
        """
        num_blocks, *token_shape = self.gpu.shape[2], *self.gpu.shape[4:]
        expected = [slot_mapping.numel(), *token_shape]
        if list(key.shape) != expected or list(value.shape) != expected:
            raise ValueError(
                f"key is {list(key.shape)} and value is {list(value.shape)}, both must be {expected}: "
                f"[slots in slot_mapping, num_kv_heads, head_dim]"
            )
        self._check_slots(slot_mapping, num_blocks)
        written = slot_mapping >= 0
        slots = slot_mapping[written]
        for pool, new in ((self.key_cache(layer), key), (self.value_cache(layer), value)):
            pool.view(-1, *token_shape)[slots] = new[written].to(pool.dtype)

    def copy(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy blocks inside the GPU pool, all layers, keys and values: copy on write.

        The pairs (source, destination) are meant as one: a block that is source of one pair and destination of
        another is read before it is overwritten.

        Raises:
            ValueError: for a block outside the pool, or a destination that occurs twice.
        """
        _copy_blocks(self.gpu, "GPU", self.gpu, "GPU", pairs)

    def swap_out(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy blocks from the GPU pool to the CPU pool. Pairs are (GPU block, CPU block); errors as for `copy`."""
        _copy_blocks(self.gpu, "GPU", self.cpu, "CPU", pairs)

    def swap_in(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy blocks from the CPU pool to the GPU pool. Pairs are (CPU block, GPU block); errors as for `copy`."""
        _copy_blocks(self.cpu, "CPU", self.gpu, "GPU", pairs)

    def _check_slots(self, slots: Tensor, num_blocks: int) -> None:
        """ValueError for the first slot that is neither padding nor inside the GPU pool."""
        outside = slots[(slots < PADDING_SLOT) | (slots >= num_blocks * self.block_size)]
        if outside.numel():
            slot = int(outside[0])
            raise ValueError(
                f"slot {slot} is in block {slot // self.block_size}, the GPU pool holds {num_blocks} blocks of "
                f"{self.block_size} slots: was it computed with this block_size?"
            )


def slot_mapping(block_table: Sequence[int], positions: Sequence[int], block_size: int) -> Tensor:
    """The slots in which the tokens at `positions` of one sequence keep their keys and values.

    Args:
        block_table: the sequence's block numbers, logical block 0 first.
        positions: token positions, counted from 0; -1 is padding.
        block_size: tokens a block, the same as the cache's.

    Returns:
        [len(positions)], int64, -1 where the position is.

    Raises:
        ValueError: for a position below -1 or behind the last block, or a negative block number.

    >>> slot_mapping([5, 2], [0, 3, 4, -1], block_size=4).tolist()
    [20, 23, 8, -1]

    Source: vLLM 0.5.4, `vllm/attention/backends/utils.py`, `compute_slot_mapping`.
    """
    capacity = len(block_table) * block_size
    table = torch.as_tensor(block_table, dtype=torch.int64)
    where = torch.as_tensor(positions, dtype=torch.int64)
    outside = where[(where < PADDING_SLOT) | (where >= capacity)]
    if outside.numel():
        raise ValueError(
            f"position {int(outside[0])} has no slot: {len(block_table)} blocks of {block_size} hold positions 0 to "
            f"{capacity - 1}"
        )
    if (table < 0).any():
        raise ValueError(f"block table {table.tolist()} has a negative block number")
    slots = torch.full_like(where, PADDING_SLOT)
    real = where >= 0
    slots[real] = table[where[real] // block_size] * block_size + where[real] % block_size
    return slots


def _copy_blocks(
    source: Tensor,
    source_name: str,
    destination: Tensor,
    destination_name: str,
    pairs: Sequence[tuple[int, int]],
) -> None:
    """Copy blocks between pools, the whole of the sources being read before anything is written."""
    if not pairs:
        return
    sources, destinations = (list(blocks) for blocks in zip(*pairs, strict=True))
    _check_blocks(sources, source.shape[2], source_name)
    _check_blocks(destinations, destination.shape[2], destination_name)
    if len(set(destinations)) < len(destinations):
        twice = next(block for block in destinations if destinations.count(block) > 1)
        raise ValueError(f"{destination_name} block {twice} is the destination of more than one pair")
    destination[:, :, destinations] = source[:, :, sources].to(destination.device)


def _check_blocks(blocks: list[int], num_blocks: int, pool_name: str) -> None:
    """ValueError for the first number that is no block of the pool."""
    for block in blocks:
        if not 0 <= block < num_blocks:
            raise ValueError(f"block {block} is not in the {pool_name} pool, which holds blocks 0 to {num_blocks - 1}")

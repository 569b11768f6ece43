"""The vocabulary of paged memory: devices, physical blocks, block tables, and what follows from them by arithmetic.

A block is bookkeeping only. The keys and values it stands for live in a tensor (`refimpl.device.kv_cache`), at the row
that `block_number` names. Everything else in the core is built on this file, and it imports nothing of refimpl.
"""

from __future__ import annotations

import enum
from collections.abc import Hashable, Iterable
from itertools import chain
from typing import TypeAlias


class Device(enum.Enum):
    """Where a block's keys and values lie. (vLLM 0.5.4: `vllm/utils.py`, `Device`.)"""

    GPU = enum.auto()
    CPU = enum.auto()


class PhysicalTokenBlock:
    """One block of the KV cache: which one it is, and how many block tables hold it.

    Owns no memory. Invariant: `ref_count` is the number of block tables that hold this object. Blocks are compared by
    identity, because one object may stand in many tables; `block_number` is unique on its device only, so GPU block 3
    and CPU block 3 are different blocks.

    Args:
        device: where the block lies.
        block_number: its row in that device's KV tensors, from 0.
        block_size: how many tokens it has room for.
        block_hash: the content key under which a prefix cache knows it; -1 where prefix caching is not in play.
        num_hashed_tokens: how many tokens that key covers, from the start of the sequence.

    Raises:
        ValueError: for a negative number or a block size below 1.

    >>> PhysicalTokenBlock(Device.GPU, block_number=3, block_size=16)
    PhysicalTokenBlock(device=GPU, block_number=3, ref_count=0)

    Source: vLLM 0.5.4, `vllm/block.py`, `PhysicalTokenBlock`; `KVCacheBlock` in today's vLLM.
    """

    __slots__ = (
        "device",
        "block_number",
        "block_size",
        "block_hash",
        "num_hashed_tokens",
        "ref_count",
        "last_accessed",
        "computed",
    )

    def __init__(
        self,
        device: Device,
        block_number: int,
        block_size: int,
        block_hash: Hashable = -1,
        num_hashed_tokens: int = 0,
    ) -> None:
        if block_number < 0:
            raise ValueError(f"block_number is {block_number}, it must be 0 or more")
        if block_size < 1:
            raise ValueError(f"block_size is {block_size}, it must be 1 or more")
        self.device: Device = device
        self.block_number: int = block_number
        self.block_size: int = block_size
        self.block_hash: Hashable = block_hash
        self.num_hashed_tokens: int = num_hashed_tokens
        self.ref_count: int = 0
        self.last_accessed: float = -1
        self.computed: bool = False

    def __repr__(self) -> str:
        return (
            f"PhysicalTokenBlock(device={self.device.name}, block_number={self.block_number}, "
            f"ref_count={self.ref_count})"
        )


def kv_bytes_per_block(block_size: int, num_layers: int, num_kv_heads: int, head_dim: int, dtype_bytes: int) -> int:
    """Bytes that one block's keys and values take, over all layers.

    Args:
        block_size: tokens a block.
        num_layers: layers of the model, each with keys and values of its own.
        num_kv_heads: key and value heads a layer; with grouped queries fewer than query heads.
        head_dim: numbers in one head's key, and in its value.
        dtype_bytes: bytes a number, such as 2 for bfloat16.

    Raises:
        ValueError: for a size below 1.

    >>> kv_bytes_per_block(block_size=16, num_layers=32, num_kv_heads=8, head_dim=128, dtype_bytes=2)
    2097152

    Source: vLLM 0.5.4, `vllm/worker/cache_engine.py`, `CacheEngine.get_cache_block_size`.
    """
    sizes = {
        "block_size": block_size,
        "num_layers": num_layers,
        "num_kv_heads": num_kv_heads,
        "head_dim": head_dim,
        "dtype_bytes": dtype_bytes,
    }
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} is {size}, it must be 1 or more")
    return 2 * block_size * num_layers * num_kv_heads * head_dim * dtype_bytes


BlockTable: TypeAlias = list[PhysicalTokenBlock]
"""A sequence's map of its memory: entry i holds the tokens i * block_size to (i + 1) * block_size - 1."""


def num_required_blocks(num_tokens: int, block_size: int) -> int:
    """How many blocks of `block_size` tokens hold `num_tokens` tokens; the last one may be partly filled.

    Raises:
        ValueError: for a negative number of tokens or a block size below 1.

    >>> [num_required_blocks(n, block_size=16) for n in (0, 1, 15, 16, 17, 35)]
    [0, 1, 1, 1, 2, 3]

    Source: vLLM 0.5.4, `vllm/sequence.py`, `Sequence.n_blocks`.
    """
    if num_tokens < 0:
        raise ValueError(f"num_tokens is {num_tokens}, it must be 0 or more")
    if block_size < 1:
        raise ValueError(f"block_size is {block_size}, it must be 1 or more")
    return (num_tokens + block_size - 1) // block_size


def share_block_table(block_table: BlockTable) -> BlockTable:
    """A block table for one more owner of the same blocks: a list of its own, each block's ref_count one higher.

    >>> parent = [PhysicalTokenBlock(Device.GPU, block_number=3, block_size=16)]
    >>> parent[0].ref_count = 1
    >>> child = share_block_table(parent)
    >>> child is parent, child[0] is parent[0], parent[0].ref_count
    (False, True, 2)

    Source: vLLM 0.5.4, `vllm/core/block_manager_v1.py`, `BlockSpaceManagerV1.fork`.
    """
    for block in block_table:
        block.ref_count += 1
    return block_table.copy()


def distinct_blocks(block_tables: Iterable[BlockTable]) -> list[PhysicalTokenBlock]:
    """Every block that stands in one of the block tables, once, first seen first.

    >>> a, b = (PhysicalTokenBlock(Device.GPU, block_number, block_size=16) for block_number in (3, 5))
    >>> [block.block_number for block in distinct_blocks([[a, b], [a]])]
    [3, 5]

    Source: vLLM 0.5.4, `vllm/core/block_manager_v1.py`, `BlockSpaceManagerV1._get_physical_blocks`.
    """
    return list(dict.fromkeys(chain.from_iterable(block_tables)))


def locate(block_table: BlockTable, position: int, block_size: int) -> tuple[PhysicalTokenBlock, int]:
    """Where a block table puts the keys and values of the token at `position`: physical block, and offset in it.

    Raises:
        ValueError: for a position that the table has no block for.

    >>> table = [PhysicalTokenBlock(Device.GPU, block_number, block_size=16) for block_number in (7, 1, 3)]
    >>> locate(table, 20, block_size=16)
    (PhysicalTokenBlock(device=GPU, block_number=1, ref_count=0), 4)

    Source: vLLM 0.5.4, `vllm/attention/backends/utils.py`, `compute_slot_mapping`.
    """
    capacity = len(block_table) * block_size
    if not 0 <= position < capacity:
        raise ValueError(f"position {position} has no block: the table's {len(block_table)} hold {capacity} tokens")
    return block_table[position // block_size], position % block_size


def slots(block_table: BlockTable, positions: Iterable[int], block_size: int) -> list[int]:
    """The slots where a block table puts the tokens at `positions`: rows of the device's KV tensors.

    Raises:
        ValueError: for a position that the table has no block for.

    >>> table = [PhysicalTokenBlock(Device.GPU, block_number, block_size=16) for block_number in (7, 1, 3)]
    >>> slots(table, [0, 15, 16, 34], block_size=16)
    [112, 127, 16, 50]

    Source: vLLM 0.5.4, `vllm/attention/backends/utils.py`, `compute_slot_mapping`.
    """
    located = [locate(block_table, position, block_size) for position in positions]
    return [block.block_number * block_size + offset for block, offset in located]


def internal_fragmentation(seq_lens: Iterable[int], block_size: int) -> int:
    """Slots that sequences of `seq_lens` tokens hold and do not fill: the empty ends of their last blocks, none shared.

    >>> internal_fragmentation([35, 16, 0], block_size=16)
    13

    Source: Kwon et al., 2023 (https://arxiv.org/abs/2309.06180), section 4.1.
    """
    return sum(num_required_blocks(seq_len, block_size) * block_size - seq_len for seq_len in seq_lens)

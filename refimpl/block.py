"""The vocabulary of paged memory: devices, physical blocks, block tables.

A block is bookkeeping only. The keys and values it stands for live in a tensor (`refimpl.device.kv_cache`), at the row
that `block_number` names. Everything else in the core is built on this file, and it imports nothing of refimpl.
"""

from __future__ import annotations

import enum
from collections.abc import Hashable
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
        self.device = device
        self.block_number = block_number
        self.block_size = block_size
        self.block_hash = block_hash
        self.num_hashed_tokens = num_hashed_tokens
        self.ref_count = 0
        self.last_accessed: float = -1
        self.computed = False

    def __repr__(self) -> str:
        return (
            f"PhysicalTokenBlock(device={self.device.name}, block_number={self.block_number}, "
            f"ref_count={self.ref_count})"
        )


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

"""Which of the free but still addressable blocks is given up next.

Owned by a `CachedBlockAllocator`: a block that nobody holds waits here under its key, and is taken back by that key or
evicted. The order is least recently used, exactly: V0 scans its free blocks for it, this keeps them in a heap.
"""

from __future__ import annotations

import heapq
from typing import TypeAlias

from refimpl.block import PhysicalTokenBlock
from refimpl.prefix_hash import BlockHash

Entry: TypeAlias = tuple[float, int, int, PhysicalTokenBlock]
"""A block in the heap, behind what it is ordered by: last_accessed, minus num_hashed_tokens, turn (never equal)."""


class LRUEvictor:
    """Free blocks by key, and the order in which they go.

    The victim has the smallest `last_accessed`; among equals the largest `num_hashed_tokens`, so that a prefix outlives
    its tail; among equals the one freed first. Invariant: a block is here exactly once, or not at all.

    A block enters the heap when the next victim is asked for, not when it is added, because most are taken back before
    that. A heap entry whose block was taken back is dead, and is dropped when it comes up or when half of them are.

    >>> from refimpl.block import Device
    >>> prefix, tail = (PhysicalTokenBlock(Device.GPU, n, 4, block_hash=n, num_hashed_tokens=4 * n) for n in (1, 2))
    >>> evictor = LRUEvictor()
    >>> evictor.add(prefix); evictor.add(tail)
    >>> evictor.evict() is tail, evictor.remove(1) is prefix, evictor.num_blocks
    (True, True, 0)

    Source: vLLM 0.5.4, `vllm/core/evictor_v1.py`, `LRUEvictor`; the order of `FreeKVCacheBlockQueue` in today's vLLM.
    """

    __slots__ = ("_added", "_entries", "_heap", "_turn")

    def __init__(self) -> None:
        self._added: dict[BlockHash, PhysicalTokenBlock] = {}  # key -> block that is not in the heap, oldest first
        self._entries: dict[BlockHash, Entry] = {}  # key -> the living heap entry of a block
        self._heap: list[Entry] = []
        self._turn = 0  # counts the blocks that enter the heap, so that the first of equals comes up first

    @property
    def num_blocks(self) -> int:
        """Blocks that can be taken back or evicted."""
        return len(self._added) + len(self._entries)

    def __contains__(self, block_hash: BlockHash) -> bool:
        return block_hash in self._added or block_hash in self._entries

    def get_block_hashes(self) -> list[BlockHash]:
        """The keys of all blocks that are here."""
        return [*self._added, *self._entries]

    def add(self, block: PhysicalTokenBlock) -> None:
        """A block that nobody holds any more.

        Raises:
            ValueError: when a block with its key is here already.
        """
        if block.block_hash in self._added or block.block_hash in self._entries:
            raise ValueError(f"a free block with the key of block {block.block_number} is here already")
        self._added[block.block_hash] = block

    def remove(self, block_hash: BlockHash) -> PhysicalTokenBlock:
        """Take a block back by its key.

        Raises:
            ValueError: when no block with this key is here.
        """
        if block_hash in self._added:
            return self._added.pop(block_hash)
        if block_hash in self._entries:
            return self._entries.pop(block_hash)[3]
        raise ValueError(f"none of the {self.num_blocks} free blocks has the key {block_hash!r}")

    def evict(self) -> PhysicalTokenBlock:
        """Give up the least recently used block; it no longer counts as computed.

        Raises:
            ValueError: when there is none.
        """
        if self._added:
            self._let_added_into_heap()
        if not self._entries:
            raise ValueError("No usable cache memory left: 0 free blocks are addressable")
        entry = heapq.heappop(self._heap)
        while self._entries.get(entry[3].block_hash) is not entry:
            entry = heapq.heappop(self._heap)
        block = entry[3]
        del self._entries[block.block_hash]
        block.computed = False
        return block

    def _let_added_into_heap(self) -> None:
        """In the order in which they were added; a heap of which half is dead is built anew."""
        heap, entries = self._heap, self._entries
        for turn, (block_hash, block) in enumerate(self._added.items(), self._turn):
            entry = entries[block_hash] = (block.last_accessed, -block.num_hashed_tokens, turn, block)
            heapq.heappush(heap, entry)
        self._turn += len(self._added)
        self._added.clear()
        if len(heap) > 2 * len(entries):
            self._heap = list(entries.values())
            heapq.heapify(self._heap)

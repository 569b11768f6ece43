"""Which of the free but still addressable blocks is given up next.

Owned by a `CachedBlockAllocator`: a block that nobody holds waits here under its key, and is taken back by that key or
evicted. The order is least recently used, exactly: V0 scans its free blocks for it, `LRUEvictor` merges runs that are
in order, and `PlainEvictor` says what the order is.
"""

from __future__ import annotations

import heapq
from typing import TypeAlias

from refimpl.block import PhysicalTokenBlock
from refimpl.prefix_hash import BlockHash

Entry: TypeAlias = tuple[float, int, int, PhysicalTokenBlock]
"""A block, behind what it is ordered by: last_accessed, minus num_hashed_tokens, and a turn that no other has."""


class LRUEvictor:
    """Free blocks by key, and the order in which they go.

    The victim has the smallest `last_accessed`; among equals the largest `num_hashed_tokens`, so that a prefix outlives
    its tail; among equals the one freed first. Invariant: a block is here exactly once, or not at all.

    Blocks that were added since the last eviction are put in order when the next victim is asked for, not before,
    because most of them are taken back by then. They form a run, a list in order with its next victim at the end; the
    runs themselves stand in a heap. An entry whose block was taken back is dead and is dropped when it comes up, or
    when half of all entries are.

    >>> from refimpl.block import Device
    >>> prefix, tail = (PhysicalTokenBlock(Device.GPU, n, 4, block_hash=n, num_hashed_tokens=4 * n) for n in (1, 2))
    >>> evictor = LRUEvictor()
    >>> evictor.add(prefix); evictor.add(tail)
    >>> evictor.evict() is tail, evictor.remove(1) is prefix, evictor.num_blocks
    (True, True, 0)

    Source: vLLM 0.5.4, `vllm/core/evictor_v1.py`, `LRUEvictor`; the order of `FreeKVCacheBlockQueue` in today's vLLM.
    """

    __slots__ = ("_added", "_entries", "_run", "_other_runs", "_num_entries", "_turn")

    def __init__(self) -> None:
        self._added: dict[BlockHash, PhysicalTokenBlock] = {}  # key -> block that is in no run yet, oldest first
        self._entries: dict[BlockHash, Entry] = {}  # key -> the living entry of a block in a run
        self._run: list[Entry] = []  # the run that victims are being taken from
        self._other_runs: list[tuple[Entry, list[Entry]]] = []  # a heap: (the run's last entry, the run)
        self._num_entries = 0  # in all runs, dead ones too
        self._turn = 0  # counts the entries ever made, so that the first of equals comes up first

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
        """Take a block back by its key, and return it.

        Raises:
            ValueError: when no block with this key is here.
        """
        if block_hash in self._added:
            return self._added.pop(block_hash)
        if block_hash in self._entries:
            return self._entries.pop(block_hash)[3]
        raise ValueError(f"none of the {self.num_blocks} free blocks has the key {block_hash!r}")

    def evict(self) -> PhysicalTokenBlock:
        """Give up and return the least recently used block; it no longer counts as computed.

        Raises:
            ValueError: when there is none.
        """
        if self._added:
            self._make_run()
        if not self._entries:
            raise ValueError("No usable cache memory left: 0 free blocks are addressable")
        while True:
            if not self._run or (self._other_runs and self._other_runs[0][0] < self._run[-1]):
                self._change_run()
            entry = self._run.pop()
            self._num_entries -= 1
            block = entry[3]
            if self._entries.get(block.block_hash) is entry:
                break
        del self._entries[block.block_hash]
        block.computed = False
        return block

    def _change_run(self) -> None:
        """Go on with the run whose next victim comes first; what is left of the one in use joins the others."""
        if self._run:
            self._run = heapq.heapreplace(self._other_runs, (self._run[-1], self._run))[1]
        else:
            self._run = heapq.heappop(self._other_runs)[1]

    def _make_run(self) -> None:
        """Put the added blocks in order. Where half of all entries would be dead, everything is put in order anew."""
        self._num_entries += len(self._added)
        run: list[Entry] = []
        for turn, (block_hash, block) in enumerate(self._added.items(), self._turn):
            entry = self._entries[block_hash] = (block.last_accessed, -block.num_hashed_tokens, turn, block)
            run.append(entry)
        self._turn += len(run)
        self._added.clear()
        if self._num_entries > 2 * len(self._entries):
            run = list(self._entries.values())
            self._num_entries, self._run = len(run), []
            self._other_runs.clear()
        run.sort(reverse=True)
        heapq.heappush(self._other_runs, (run[-1], run))


class PlainEvictor:
    """The same free blocks in the same order, in the plainest form: a dict, searched to its end for each victim.

    `LRUEvictor` gives up the same blocks in the same order and stays fast with thousands of them. Invariant: a block
    is here exactly once, or not at all.

    >>> from refimpl.block import Device
    >>> prefix, tail = (PhysicalTokenBlock(Device.GPU, n, 4, block_hash=n, num_hashed_tokens=4 * n) for n in (1, 2))
    >>> evictor = PlainEvictor()
    >>> evictor.add(prefix); evictor.add(tail)
    >>> evictor.evict() is tail, evictor.remove(1) is prefix, evictor.num_blocks
    (True, True, 0)

    Source: vLLM 0.5.4, `vllm/core/evictor_v1.py`, `LRUEvictor`, whose search stops early.
    """

    __slots__ = ("free_blocks",)

    def __init__(self) -> None:
        self.free_blocks: dict[BlockHash, PhysicalTokenBlock] = {}  # key -> block, the one freed first in front

    @property
    def num_blocks(self) -> int:
        """Blocks that can be taken back or evicted."""
        return len(self.free_blocks)

    def __contains__(self, block_hash: BlockHash) -> bool:
        return block_hash in self.free_blocks

    def get_block_hashes(self) -> list[BlockHash]:
        """The keys of all blocks that are here."""
        return list(self.free_blocks)

    def add(self, block: PhysicalTokenBlock) -> None:
        """A block that nobody holds any more.

        Raises:
            ValueError: when a block with its key is here already.
        """
        if block.block_hash in self.free_blocks:
            raise ValueError(f"a free block with the key of block {block.block_number} is here already")
        self.free_blocks[block.block_hash] = block

    def remove(self, block_hash: BlockHash) -> PhysicalTokenBlock:
        """Take a block back by its key, and return it.

        Raises:
            ValueError: when no block with this key is here.
        """
        if block_hash not in self.free_blocks:
            raise ValueError(f"none of the {self.num_blocks} free blocks has the key {block_hash!r}")
        return self.free_blocks.pop(block_hash)

    def evict(self) -> PhysicalTokenBlock:
        """Give up and return the least recently used block; it no longer counts as computed.

        Raises:
            ValueError: when there is none.
        """
        if not self.free_blocks:
            raise ValueError("No usable cache memory left: 0 free blocks are addressable")
        victim = min(self.free_blocks.values(), key=lambda block: (block.last_accessed, -block.num_hashed_tokens))
        del self.free_blocks[victim.block_hash]
        victim.computed = False
        return victim

"""Who owns the free blocks of one device.

An allocator hands out blocks and takes them back, and knows nothing of sequences. A block that it handed out stays out
until every table that holds it has let go. The block manager keeps one allocator a device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from refimpl.block import BlockTable, Device, PhysicalTokenBlock
from refimpl.evictor import LRUEvictor
from refimpl.prefix_hash import AnonymousKey, BlockHash


class BlockAllocator(Protocol):
    """What a block manager asks of an allocator. (vLLM 0.5.4: `BlockAllocatorBase`.)"""

    device: Device

    def allocate(self, block_hash: BlockHash | None = None, num_hashed_tokens: int = 0) -> PhysicalTokenBlock:
        """A block with one owner more, known by `block_hash` where contents matter. ValueError when none is free."""

    def free(self, block: PhysicalTokenBlock) -> None:
        """One owner lets go. ValueError for a block without an owner."""

    def get_num_free_blocks(self) -> int:
        """Blocks that can be handed out."""

    def get_num_total_blocks(self) -> int:
        """Blocks in all."""

    def get_num_blocks_to_take(self, block_hashes: Sequence[BlockHash | None]) -> int:
        """How many free blocks it takes to allocate all these keys, each once."""

    def get_block_hashes(self) -> list[BlockHash]:
        """Every key under which a block can be had."""

    def contains_block(self, block_hash: BlockHash) -> bool:
        """Whether a block with this key can be had without computing it."""

    def update_hash(self, block_hash: BlockHash, block: PhysicalTokenBlock) -> None:
        """Re-key a block that is in use."""


class UncachedBlockAllocator:
    """A free list: every block exists from the start, and any free block is as good as another.

    Owns the blocks 0 to num_blocks - 1 of one device. Invariant: a block is in `free_blocks` exactly when its
    ref_count is 0.

    Args:
        device: the device whose blocks these are.
        block_size: tokens a block.
        num_blocks: how many blocks there are.

    Raises:
        ValueError: for a negative number of blocks or a block size below 1.

    >>> allocator = UncachedBlockAllocator(Device.GPU, block_size=16, num_blocks=2)
    >>> block = allocator.allocate()
    >>> block.block_number, allocator.get_num_free_blocks()
    (1, 1)
    >>> allocator.free(block)
    >>> allocator.get_num_free_blocks()
    2

    Source: vLLM 0.5.4, `vllm/core/block_manager_v1.py`, `UncachedBlockAllocator`; `FreeKVCacheBlockQueue` in today's
    vLLM.
    """

    __slots__ = ("device", "block_size", "num_blocks", "free_blocks")

    def __init__(self, device: Device, block_size: int, num_blocks: int) -> None:
        if block_size < 1:
            raise ValueError(f"block_size is {block_size}, it must be 1 or more")
        if num_blocks < 0:
            raise ValueError(f"num_blocks is {num_blocks}, it must be 0 or more")
        self.device = device
        self.block_size = block_size
        self.num_blocks = num_blocks
        self.free_blocks: BlockTable = [
            PhysicalTokenBlock(device, block_number, block_size) for block_number in range(num_blocks)
        ]

    def allocate(self, block_hash: BlockHash | None = None, num_hashed_tokens: int = 0) -> PhysicalTokenBlock:
        """A free block, with one owner from now on: the one freed last.

        `block_hash` and `num_hashed_tokens` belong to prefix caching and are ignored here.

        Raises:
            ValueError: when no block is free.
        """
        if not self.free_blocks:
            raise ValueError(f"Out of memory: all {self.num_blocks} {self.device.name} blocks are in use")
        block = self.free_blocks.pop()
        block.ref_count = 1
        return block

    def free(self, block: PhysicalTokenBlock) -> None:
        """One owner lets go of `block`; it is free again when that was the last one.

        Raises:
            ValueError: when the block has no owner.
        """
        if block.ref_count == 0:
            raise ValueError(f"Double free: {self.device.name} block {block.block_number} has no owner")
        block.ref_count -= 1
        if block.ref_count == 0:
            self.free_blocks.append(block)

    def get_num_free_blocks(self) -> int:
        """Blocks that can be handed out."""
        return len(self.free_blocks)

    def get_num_total_blocks(self) -> int:
        """Blocks in all, free or not."""
        return self.num_blocks

    def get_num_blocks_to_take(self, block_hashes: Sequence[BlockHash | None]) -> int:
        """A free block for each of `block_hashes`: nothing is ever shared by content."""
        return len(block_hashes)

    def get_block_hashes(self) -> list[BlockHash]:
        """None: it keeps no content."""
        return []

    def contains_block(self, block_hash: BlockHash) -> bool:
        """NotImplementedError, whatever `block_hash` is: this allocator keeps no content."""
        raise NotImplementedError("an uncached allocator does not know contents; use CachedBlockAllocator")

    def update_hash(self, block_hash: BlockHash, block: PhysicalTokenBlock) -> None:
        """NotImplementedError, whatever `block_hash` and `block` are: this allocator keeps no content."""
        raise NotImplementedError("an uncached allocator does not know contents; use CachedBlockAllocator")


class CachedBlockAllocator:
    """Same content, same block: blocks are found by key, while somebody holds them and for a while afterwards.

    Owns the blocks 0 to num_blocks - 1 of one device. A block is live (somebody holds it), free but addressable (in
    the evictor, content and `computed` kept), or not created yet. Invariant: no two blocks have the same key.

    Args:
        device: the device whose blocks these are.
        block_size: tokens a block.
        num_blocks: how many blocks there are.

    Raises:
        ValueError: for a negative number of blocks or a block size below 1.

    >>> allocator = CachedBlockAllocator(Device.GPU, block_size=16, num_blocks=2)
    >>> block = allocator.allocate(block_hash=7, num_hashed_tokens=16)
    >>> allocator.allocate(block_hash=7) is block, block.ref_count
    (True, 2)
    >>> allocator.free(block); allocator.free(block)
    >>> allocator.contains_block(7), allocator.get_num_free_blocks()
    (True, 2)

    Source: vLLM 0.5.4, `vllm/core/block_manager_v1.py`, `CachedBlockAllocator`; `BlockPool` in today's vLLM.
    """

    __slots__ = ("device", "block_size", "num_blocks", "current_num_blocks", "cached_blocks", "evictor")

    def __init__(self, device: Device, block_size: int, num_blocks: int) -> None:
        if block_size < 1:
            raise ValueError(f"block_size is {block_size}, it must be 1 or more")
        if num_blocks < 0:
            raise ValueError(f"num_blocks is {num_blocks}, it must be 0 or more")
        self.device = device
        self.block_size = block_size
        self.num_blocks = num_blocks
        self.current_num_blocks = 0  # created so far
        self.cached_blocks: dict[BlockHash, PhysicalTokenBlock] = {}  # key -> live block
        self.evictor = LRUEvictor()

    def allocate(self, block_hash: BlockHash | None = None, num_hashed_tokens: int = 0) -> PhysicalTokenBlock:
        """The block of this key, with one owner more: a live one, one that was free, or a new one on a miss.

        Args:
            block_hash: the content's key; None for content that nobody may share.
            num_hashed_tokens: tokens from the start of the sequence to the end of the block.

        Raises:
            ValueError: when it takes a free block and there is none.
        """
        if block_hash is None:
            block_hash = AnonymousKey()
        block = self.cached_blocks.get(block_hash)
        if block is None:
            if block_hash in self.evictor:
                block = self.evictor.remove(block_hash)
            else:
                block = self._new_block(block_hash, num_hashed_tokens)
            self.cached_blocks[block_hash] = block
        block.ref_count += 1
        return block

    def _new_block(self, block_hash: BlockHash, num_hashed_tokens: int) -> PhysicalTokenBlock:
        """A block nobody has used before while there are such, otherwise the evictor's victim, relabelled."""
        if self.current_num_blocks < self.num_blocks:
            block = PhysicalTokenBlock(self.device, self.current_num_blocks, self.block_size)
            self.current_num_blocks += 1
        else:
            try:
                block = self.evictor.evict()
            except ValueError:
                used_up = f"all {self.num_blocks} {self.device.name} blocks are in use"
                raise ValueError(f"No usable cache memory left: {used_up}") from None
        block.block_hash = block_hash
        block.num_hashed_tokens = num_hashed_tokens
        block.last_accessed = -1
        return block

    def free(self, block: PhysicalTokenBlock) -> None:
        """One owner lets go of `block`; when that was the last one it is free, and still addressable by its key.

        Raises:
            ValueError: when the block has no owner.
        """
        if block.ref_count == 0:
            raise ValueError(f"Double free: {self.device.name} block {block.block_number} has no owner")
        block.ref_count -= 1
        if block.ref_count == 0:
            del self.cached_blocks[block.block_hash]
            self.evictor.add(block)

    def get_num_free_blocks(self) -> int:
        """Blocks that can be handed out: not created yet, or in the evictor."""
        return self.num_blocks - self.current_num_blocks + self.evictor.num_blocks

    def get_num_total_blocks(self) -> int:
        """Blocks in all, free or not."""
        return self.num_blocks

    def get_num_blocks_to_take(self, block_hashes: Sequence[BlockHash | None]) -> int:
        """A free block for each of `block_hashes` that is not live."""
        live = self.cached_blocks
        return sum([block_hash not in live for block_hash in block_hashes])

    def get_block_hashes(self) -> list[BlockHash]:
        """The keys of live blocks and of those in the evictor."""
        return [*self.cached_blocks, *self.evictor.get_block_hashes()]

    def contains_block(self, block_hash: BlockHash) -> bool:
        """Whether a block with this key is live or in the evictor."""
        return block_hash in self.cached_blocks or block_hash in self.evictor

    def update_hash(self, block_hash: BlockHash, block: PhysicalTokenBlock) -> None:
        """Re-key a live block: its content is complete now, or no longer what its key says.

        Raises:
            ValueError: when the key is known already, or the block is not live.
        """
        if self.contains_block(block_hash):
            raise ValueError(f"key {block_hash!r} belongs to a block already")
        if self.cached_blocks.get(block.block_hash) is not block:
            raise ValueError(f"{self.device.name} block {block.block_number} is not in use here")
        del self.cached_blocks[block.block_hash]
        block.block_hash = block_hash
        self.cached_blocks[block_hash] = block

"""Who owns the free blocks of one device.

An allocator hands out blocks and takes them back, and knows nothing of sequences. A block that it handed out stays out
until every table that holds it has let go. The block manager keeps one allocator a device.
"""

from __future__ import annotations

from refimpl.block import BlockTable, Device, PhysicalTokenBlock


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

    def allocate(self, block_hash: int | None = None, num_hashed_tokens: int = 0) -> PhysicalTokenBlock:
        """A free block, with one owner from now on: the one freed last.

        Both arguments belong to prefix caching and are ignored here.

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

    def contains_block(self, block_hash: int) -> bool:
        """Not for this allocator: it keeps no content."""
        raise NotImplementedError("an uncached allocator does not know contents; use CachedBlockAllocator")

    def update_hash(self, block_hash: int, block: PhysicalTokenBlock) -> None:
        """Not for this allocator: it keeps no content."""
        raise NotImplementedError("an uncached allocator does not know contents; use CachedBlockAllocator")

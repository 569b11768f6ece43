"""Which sequence owns which block: admission, growth, sharing, swapping, release.

The manager keeps one block table a sequence and one allocator a device, and moves blocks between them. Decisions
(`can_*`) change nothing; actions do all their work or raise and change nothing. Statuses are the scheduler's business.

The step convention: a sequence's length already includes the newest token when `append_slots` is called for it; the
keys and values of that token are written in the step that follows.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

from refimpl.allocator import UncachedBlockAllocator
from refimpl.block import BlockTable, Device, PhysicalTokenBlock, share_block_table
from refimpl.sequence import Sequence, SequenceGroup, SequenceStatus


class AllocStatus(enum.Enum):
    """The answer to a request for blocks. (vLLM 0.5.4: `vllm/core/interfaces.py`, `AllocStatus`.)

    OK: there is room now. LATER: there will be, when others have finished. NEVER: the pool is too small.
    """

    OK = enum.auto()
    LATER = enum.auto()
    NEVER = enum.auto()


class BlockSpaceManager:
    """Owns every block table. Invariant: a block's ref_count is the number of tables that hold it.

    Args:
        block_size: tokens a block.
        num_gpu_blocks, num_cpu_blocks: sizes of the two pools, in blocks.
        watermark: share of the GPU pool that admission leaves free, so that running sequences can grow; the number
            of blocks is truncated, so a small pool may reserve none.
        enable_caching: reuse blocks by content.

    Raises:
        ValueError: for a negative watermark, a negative pool or a block size below 1.
        NotImplementedError: for enable_caching.

    >>> manager = BlockSpaceManager(block_size=4, num_gpu_blocks=8, num_cpu_blocks=0)
    >>> seq = Sequence(0, prompt_token_ids=[1, 2, 3, 4, 5], block_size=4)
    >>> group = SequenceGroup("a", [seq])
    >>> manager.can_allocate(group).name
    'OK'
    >>> manager.allocate(group)
    >>> manager.get_block_table(seq)
    [7, 6]

    Source: vLLM 0.5.4, `vllm/core/block_manager_v1.py`, `BlockSpaceManagerV1`; `KVCacheManager` in today's vLLM.
    """

    def __init__(
        self,
        block_size: int,
        num_gpu_blocks: int,
        num_cpu_blocks: int,
        watermark: float = 0.01,
        enable_caching: bool = False,
    ) -> None:
        if enable_caching:
            raise NotImplementedError("prefix caching is not in this version: leave enable_caching out")
        if watermark < 0:
            raise ValueError(f"watermark is {watermark}, it must be 0 or more")
        self.block_size = block_size
        self.num_total_gpu_blocks = num_gpu_blocks
        self.num_total_cpu_blocks = num_cpu_blocks
        self.watermark_blocks = int(watermark * num_gpu_blocks)
        self.enable_caching = enable_caching
        self.gpu_allocator = UncachedBlockAllocator(Device.GPU, block_size, num_gpu_blocks)
        self.cpu_allocator = UncachedBlockAllocator(Device.CPU, block_size, num_cpu_blocks)
        self.block_tables: dict[int, BlockTable] = {}  # seq_id -> block table

    def can_allocate(self, seq_group: SequenceGroup) -> AllocStatus:
        """Whether the group's prompt fits, with the watermark left free.

        Raises:
            ValueError: for a group without a WAITING sequence.
        """
        return self._alloc_status(_waiting_seqs(seq_group)[0].n_blocks)

    def allocate(self, seq_group: SequenceGroup) -> None:
        """Give the group's WAITING sequences their prompt's blocks: one set of blocks, a table for each sequence.

        Raises:
            ValueError: for a group without a WAITING sequence, one that has a table already, or too few free blocks.
        """
        waiting = _waiting_seqs(seq_group)
        for seq in waiting:
            if seq.seq_id in self.block_tables:
                raise ValueError(f"sequence {seq.seq_id} has a block table already")
        required = waiting[0].n_blocks
        _check_room(required, self.gpu_allocator)
        block_table = [self.gpu_allocator.allocate() for _ in range(required)]
        self.block_tables[waiting[0].seq_id] = block_table
        for seq in waiting[1:]:
            self.block_tables[seq.seq_id] = share_block_table(block_table)

    def can_append_slots(self, seq_group: SequenceGroup) -> bool:
        """Whether every RUNNING sequence could take a new block, needed or not: simple, and never too few."""
        num_seqs = seq_group.num_seqs(status=SequenceStatus.RUNNING)
        return num_seqs <= self.gpu_allocator.get_num_free_blocks()

    def append_slots(self, seq: Sequence) -> list[tuple[int, int]]:
        """Make room for the sequence's newest token, which its length includes already.

        Returns:
            What has to be copied before the token's keys and values are written: at most one (source, destination)
            pair of GPU block numbers.

        Raises:
            KeyError: for a sequence without a block table.
            ValueError: when more than one block is missing, the sequence is swapped out, or no block is free.
        """
        block_table = self._block_table_on(Device.GPU, seq)
        missing = seq.n_blocks - len(block_table)
        if missing > 1:
            raise ValueError(
                f"sequence {seq.seq_id} needs {seq.n_blocks} blocks and has {len(block_table)}: "
                f"append_slots adds at most 1, so call it after every token"
            )
        if missing == 1:
            block_table.append(self.gpu_allocator.allocate())
            return []
        if block_table and block_table[-1].ref_count > 1:
            return [self._copy_on_write(block_table)]
        return []

    def _copy_on_write(self, block_table: BlockTable) -> tuple[int, int]:
        """Replace the shared last block by one of the sequence's own; the (source, destination) pair to copy."""
        new_block = self.gpu_allocator.allocate()
        shared_block, block_table[-1] = block_table[-1], new_block
        self.gpu_allocator.free(shared_block)
        return shared_block.block_number, new_block.block_number

    def fork(self, parent_seq: Sequence, child_seq: Sequence) -> None:
        """The child shares every block of its parent; nothing is allocated. A parent without a table: nothing.

        Raises:
            ValueError: when the child has a table already.
        """
        if child_seq.seq_id in self.block_tables:
            raise ValueError(f"sequence {child_seq.seq_id} has a block table already")
        if parent_seq.seq_id in self.block_tables:
            self.block_tables[child_seq.seq_id] = share_block_table(self.block_tables[parent_seq.seq_id])

    def free(self, seq: Sequence) -> None:
        """The sequence lets go of its blocks, front to back, wherever they lie. Without a table: nothing."""
        self._free_block_table(self.block_tables.pop(seq.seq_id, []))

    def reset(self) -> None:
        """Free every table."""
        for block_table in self.block_tables.values():
            self._free_block_table(block_table)
        self.block_tables.clear()

    def can_swap_out(self, seq_group: SequenceGroup) -> bool:
        """Whether the group's blocks fit on the CPU, each shared block counted once."""
        return len(self._distinct_blocks(seq_group)) <= self.cpu_allocator.get_num_free_blocks()

    def swap_out(self, seq_group: SequenceGroup) -> list[tuple[int, int]]:
        """Move the RUNNING sequences' tables to the CPU, sharing intact.

        Returns:
            (GPU block number, CPU block number), one pair for each distinct block, first seen first.

        Raises:
            KeyError: for a sequence without a block table.
            ValueError: when the CPU pool has too few free blocks, or a sequence is on the CPU already.
        """
        return self._swap(seq_group.get_seqs(SequenceStatus.RUNNING), self.gpu_allocator, self.cpu_allocator)

    def can_swap_in(self, seq_group: SequenceGroup) -> AllocStatus:
        """Whether the group's blocks fit on the GPU, and one more for the next token of each SWAPPED sequence."""
        num_swapped_seqs = seq_group.num_seqs(status=SequenceStatus.SWAPPED)
        return self._alloc_status(len(self._distinct_blocks(seq_group)) + num_swapped_seqs)

    def swap_in(self, seq_group: SequenceGroup) -> list[tuple[int, int]]:
        """Move the SWAPPED sequences' tables back to the GPU, sharing intact: `swap_out` mirrored.

        Returns:
            (CPU block number, GPU block number), one pair for each distinct block, first seen first.
        """
        return self._swap(seq_group.get_seqs(SequenceStatus.SWAPPED), self.cpu_allocator, self.gpu_allocator)

    def get_block_table(self, seq: Sequence) -> list[int]:
        """The sequence's block numbers, logical block 0 first. KeyError for a sequence without a table."""
        return [block.block_number for block in self._block_table(seq)]

    def get_num_free_gpu_blocks(self) -> int:
        """Free blocks of the GPU pool."""
        return self.gpu_allocator.get_num_free_blocks()

    def get_num_free_cpu_blocks(self) -> int:
        """Free blocks of the CPU pool."""
        return self.cpu_allocator.get_num_free_blocks()

    def access_all_blocks_in_seq(self, seq: Sequence, now: float) -> None:
        """Stamp the sequence's blocks as used at `now`: for prefix caching only, without it nothing."""

    def mark_blocks_as_computed(self, seq_group: SequenceGroup) -> None:
        """Mark the group's full blocks as reusable: for prefix caching only, without it nothing."""

    def get_common_computed_block_ids(self, seqs: list[Sequence]) -> list[int]:
        """The leading blocks that need no computing in any of `seqs`: none without prefix caching."""
        return []

    def _alloc_status(self, required: int) -> AllocStatus:
        """Whether `required` GPU blocks can be taken and the watermark stay free."""
        if self.num_total_gpu_blocks - required < self.watermark_blocks:
            return AllocStatus.NEVER
        if self.gpu_allocator.get_num_free_blocks() - required >= self.watermark_blocks:
            return AllocStatus.OK
        return AllocStatus.LATER

    def _swap(
        self, seqs: list[Sequence], source: UncachedBlockAllocator, destination: UncachedBlockAllocator
    ) -> list[tuple[int, int]]:
        """Rebuild the tables of `seqs` in `destination`; a source block met again keeps its one destination."""
        block_tables = {seq.seq_id: self._block_table_on(source.device, seq) for seq in seqs}
        _check_room(len(_distinct(block_tables.values())), destination)
        moved: dict[PhysicalTokenBlock, PhysicalTokenBlock] = {}  # source block -> destination block
        for seq_id, block_table in block_tables.items():
            self.block_tables[seq_id] = [_move(block, moved, destination) for block in block_table]
            self._free_block_table(block_table)
        return [(block.block_number, target.block_number) for block, target in moved.items()]

    def _free_block_table(self, block_table: BlockTable) -> None:
        for block in block_table:
            allocator = self.gpu_allocator if block.device is Device.GPU else self.cpu_allocator
            allocator.free(block)

    def _distinct_blocks(self, seq_group: SequenceGroup) -> list[PhysicalTokenBlock]:
        return _distinct(self._block_table(seq) for seq in seq_group.get_unfinished_seqs())

    def _block_table(self, seq: Sequence) -> BlockTable:
        if seq.seq_id not in self.block_tables:
            raise KeyError(f"sequence {seq.seq_id} has no block table: allocate its group first")
        return self.block_tables[seq.seq_id]

    def _block_table_on(self, device: Device, seq: Sequence) -> BlockTable:
        """The sequence's table, which must lie on `device`. Its first block tells: a table never mixes devices."""
        block_table = self._block_table(seq)
        if block_table and block_table[0].device is not device:
            where = block_table[0].device.name
            raise ValueError(f"sequence {seq.seq_id} has its blocks on the {where}, not on the {device.name}")
        return block_table


def _waiting_seqs(seq_group: SequenceGroup) -> list[Sequence]:
    """The group's WAITING sequences, which share one prompt; ValueError when there is none."""
    waiting = seq_group.get_seqs(SequenceStatus.WAITING)
    if not waiting:
        raise ValueError(f"request {seq_group.request_id} has no WAITING sequence to allocate blocks for")
    return waiting


def _check_room(required: int, allocator: UncachedBlockAllocator) -> None:
    """ValueError unless `allocator` has `required` free blocks."""
    free = allocator.get_num_free_blocks()
    if required > free:
        raise ValueError(
            f"Out of memory: needs {required} blocks, the {allocator.device.name} pool has {free} free "
            f"of {allocator.get_num_total_blocks()}"
        )


def _distinct(block_tables: Iterable[BlockTable]) -> list[PhysicalTokenBlock]:
    """Every block once, first seen first."""
    return list(dict.fromkeys(block for block_table in block_tables for block in block_table))


def _move(
    block: PhysicalTokenBlock,
    moved: dict[PhysicalTokenBlock, PhysicalTokenBlock],
    destination: UncachedBlockAllocator,
) -> PhysicalTokenBlock:
    """The block's counterpart in `destination`, with one owner more."""
    if block in moved:
        moved[block].ref_count += 1
    else:
        moved[block] = destination.allocate()
    return moved[block]

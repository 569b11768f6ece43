"""Which sequence owns which block: admission, growth, sharing, swapping, release.

The manager keeps one block table a sequence and one allocator a device, and moves blocks between them. Decisions
(`can_*`) change nothing; actions do all their work or raise and change nothing. Statuses are the scheduler's business.

The step convention: a sequence's length already includes the newest token when `append_slots` is called for it; the
keys and values of that token are written in the step that follows.
"""

from __future__ import annotations

import enum
import math
from itertools import takewhile
from typing import NoReturn

from refimpl.allocator import BlockAllocator, CachedBlockAllocator, UncachedBlockAllocator
from refimpl.block import BlockTable, Device, PhysicalTokenBlock, distinct_blocks, share_block_table
from refimpl.prefix_hash import NO_PREFIX, AnonymousKey, BlockHash, PrefixKeys
from refimpl.sequence import Sequence, SequenceGroup, SequenceStatus


class AllocStatus(enum.Enum):
    """The answer to a request for blocks. (vLLM 0.5.4: `vllm/core/interfaces.py`, `AllocStatus`.)

    OK: there is room now. LATER: there will be, when others have finished. NEVER: the pool is too small.
    """

    OK = enum.auto()
    LATER = enum.auto()
    NEVER = enum.auto()


def num_watermark_blocks(watermark: float, num_gpu_blocks: int) -> int:
    """GPU blocks that admission leaves free: the share `watermark` of `num_gpu_blocks`, truncated, so it may be none.

    Raises:
        ValueError: for a share that is negative or not finite.

    >>> num_watermark_blocks(0.01, 1000), num_watermark_blocks(0.01, 64)
    (10, 0)

    Source: vLLM 0.5.4, `vllm/core/block_manager_v1.py`, `BlockSpaceManagerV1.__init__`.
    """
    if not 0 <= watermark < math.inf:
        raise ValueError(f"watermark is {watermark}, it must be 0 or more, and finite")
    return int(watermark * num_gpu_blocks)


class BlockTables(dict[int, BlockTable]):
    """Every sequence's block table by seq_id; a sequence without one is a KeyError in words."""

    def __missing__(self, seq_id: int) -> BlockTable:
        raise KeyError(f"sequence {seq_id} has no block table: allocate its group first")


class BlockSpaceManager:
    """Owns every block table. Invariant: a block's ref_count is the number of tables that hold it.

    Args:
        block_size: tokens a block.
        num_gpu_blocks, num_cpu_blocks: sizes of the two pools, in blocks.
        watermark: share of the GPU pool that admission leaves free, so that running sequences can grow; the number
            of blocks is truncated, so a small pool may reserve none.
        enable_caching: reuse blocks by content.
        sliding_window: None; vLLM's flag for models that look back a few tokens only, which are left out here.

    Methods take vLLM's `num_lookahead_slots` where vLLM's do, slots beyond the next token; left out here, so it is 0.

    Raises:
        ValueError: for a negative watermark, a negative pool or a block size below 1.
        NotImplementedError: for a sliding window, or for lookahead slots in a call.

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
        *,
        sliding_window: int | None = None,
    ) -> None:
        if sliding_window is not None:
            raise NotImplementedError(f"sliding_window is {sliding_window}, tables here cover all tokens: use None")
        self.block_size = block_size
        self.num_total_gpu_blocks = num_gpu_blocks
        self.num_total_cpu_blocks = num_cpu_blocks
        self.watermark_blocks = num_watermark_blocks(watermark, num_gpu_blocks)
        self.enable_caching = enable_caching
        allocator = CachedBlockAllocator if enable_caching else UncachedBlockAllocator
        self.gpu_allocator: BlockAllocator = allocator(Device.GPU, block_size, num_gpu_blocks)
        self.cpu_allocator: BlockAllocator = allocator(Device.CPU, block_size, num_cpu_blocks)
        self.block_tables: dict[int, BlockTable] = BlockTables()  # seq_id -> block table
        self.prefix_keys = PrefixKeys()

    def can_allocate(self, group: SequenceGroup) -> AllocStatus:
        """Whether the group's prompt fits, with the watermark left free.

        Raises:
            ValueError: for a group without a WAITING sequence, or one that counts in blocks of another size.
        """
        return self._alloc_status(self._waiting_seqs(group)[0].n_blocks)

    def allocate(self, group: SequenceGroup) -> None:
        """Give the group's WAITING sequences their prompt's blocks: one set of blocks, a table for each sequence.

        Raises:
            ValueError: for a group without a WAITING sequence, one that has a table already, or too few free blocks.
        """
        waiting = self._waiting_seqs(group)
        for seq in waiting:
            if seq.seq_id in self.block_tables:
                raise ValueError(f"sequence {seq.seq_id} has a block table already")
        block_hashes = self._block_hashes(waiting[0])
        self._check_room(self.gpu_allocator, block_hashes)
        block_table = [
            self.gpu_allocator.allocate(block_hash, (i + 1) * self.block_size)
            for i, block_hash in enumerate(block_hashes)
        ]
        self.block_tables[waiting[0].seq_id] = block_table
        for seq in waiting[1:]:
            self.block_tables[seq.seq_id] = share_block_table(block_table)

    def can_append_slots(self, group: SequenceGroup, num_lookahead_slots: int = 0) -> bool:
        """Whether every RUNNING sequence could take a new block, needed or not: simple, and never too few."""
        if num_lookahead_slots:
            self._refuse_lookahead(num_lookahead_slots)
        num_seqs = len(group.get_seqs(SequenceStatus.RUNNING))
        return num_seqs <= self.gpu_allocator.get_num_free_blocks()

    def append_slots(self, seq: Sequence, num_lookahead_slots: int = 0) -> list[tuple[int, int]]:
        """Make room for the sequence's newest token, which its length includes already.

        Returns:
            What has to be copied before the token's keys and values are written: at most one (source, destination)
            pair of GPU block numbers.

        Raises:
            KeyError: for a sequence without a block table.
            ValueError: when more than one block is missing, the sequence is swapped out, or no block is free.
        """
        if num_lookahead_slots:
            self._refuse_lookahead(num_lookahead_slots)
        block_table = self._table_on(Device.GPU, seq)
        missing = seq.n_blocks - len(block_table)
        if missing > 1:
            raise ValueError(
                f"sequence {seq.seq_id} needs {seq.n_blocks} blocks and has {len(block_table)}: "
                f"append_slots adds at most 1, so call it after every token"
            )
        if missing == 1:
            block_table.append(self._allocate_last_block(seq))
        elif block_table and block_table[-1].ref_count > 1:
            return [self._copy_on_write(seq, block_table)]
        elif block_table:
            self._rekey_last_block(seq, block_table)
        return []

    def _copy_on_write(self, seq: Sequence, block_table: BlockTable) -> tuple[int, int]:
        """Replace the shared last block by one of the sequence's own; the (source, destination) pair to copy."""
        new_block = self._allocate_last_block(seq)
        shared_block, block_table[-1] = block_table[-1], new_block
        self.gpu_allocator.free(shared_block)
        return shared_block.block_number, new_block.block_number

    def _allocate_last_block(self, seq: Sequence) -> PhysicalTokenBlock:
        """A block for the end of the sequence: by its content when the newest token fills it, else anonymous."""
        return self.gpu_allocator.allocate(self._last_block_hash(seq), seq.n_blocks * self.block_size)

    def _rekey_last_block(self, seq: Sequence, block_table: BlockTable) -> None:
        """A token is written in place into the last block, so the block is no longer what its key says.

        Full now, it is promoted: to the block that has this content already, or under its content's key. Still
        partial, it gives up a content key that it may have from a prompt. Without prefix caching nothing.
        """
        if not self.enable_caching:
            return
        last_block, block_hash = block_table[-1], self._last_block_hash(seq)
        if block_hash is None:
            if not isinstance(last_block.block_hash, AnonymousKey):
                self.gpu_allocator.update_hash(AnonymousKey(), last_block)
        elif self.gpu_allocator.contains_block(block_hash):
            self.gpu_allocator.free(last_block)
            block_table[-1] = self.gpu_allocator.allocate(block_hash, last_block.num_hashed_tokens)
        else:
            self.gpu_allocator.update_hash(block_hash, last_block)

    def _block_hashes(self, seq: Sequence) -> list[BlockHash | None]:
        """The key of each of the sequence's blocks, the partly filled last one included; None without caching."""
        if not self.enable_caching:
            return [None] * seq.n_blocks
        self._forget_old_prefixes()
        return [*self.prefix_keys.of_tokens(seq.get_token_ids(), self.block_size)]

    def _last_block_hash(self, seq: Sequence) -> BlockHash | None:
        """The key of the sequence's last block when it is full; None while its content can still change."""
        if not self.enable_caching or seq.get_len() % self.block_size:
            return None
        self._forget_old_prefixes()
        last = seq.n_blocks - 1
        prefix = self.block_tables[seq.seq_id][last - 1].block_hash if last else NO_PREFIX
        return self.prefix_keys.key(prefix, tuple(seq.get_token_ids(last * self.block_size)))

    def _forget_old_prefixes(self) -> None:
        if self.prefix_keys.has_many():
            self.prefix_keys.forget_all_but(
                [*self.gpu_allocator.get_block_hashes(), *self.cpu_allocator.get_block_hashes()]
            )

    def fork(self, parent: Sequence, child: Sequence) -> None:
        """The child shares every block of its parent; nothing is allocated. A parent without a table: nothing.

        Raises:
            ValueError: when the child has a table already.
        """
        if child.seq_id in self.block_tables:
            raise ValueError(f"sequence {child.seq_id} has a block table already")
        if parent.seq_id in self.block_tables:
            self.block_tables[child.seq_id] = share_block_table(self.block_tables[parent.seq_id])

    def free(self, seq: Sequence) -> None:
        """The sequence lets go of its blocks, front to back, wherever they lie. Without a table: nothing."""
        self._free_block_table(self.block_tables.pop(seq.seq_id, []))

    def reset(self) -> None:
        """Free every table."""
        for block_table in self.block_tables.values():
            self._free_block_table(block_table)
        self.block_tables.clear()

    def can_swap_out(self, group: SequenceGroup) -> bool:
        """Whether the group's blocks fit on the CPU, each shared block counted once."""
        return len(self._distinct_blocks(group)) <= self.cpu_allocator.get_num_free_blocks()

    def swap_out(self, group: SequenceGroup) -> list[tuple[int, int]]:
        """Move the RUNNING sequences' tables to the CPU, sharing intact.

        Returns:
            (GPU block number, CPU block number), one pair for each distinct block, first seen first.

        Raises:
            KeyError: for a sequence without a block table.
            ValueError: when the CPU pool has too few free blocks, or a sequence is on the CPU already.
        """
        return self._swap(group.get_seqs(SequenceStatus.RUNNING), self.gpu_allocator, self.cpu_allocator)

    def can_swap_in(self, group: SequenceGroup, num_lookahead_slots: int = 0) -> AllocStatus:
        """Whether the group's blocks fit on the GPU, and one more for the next token of each SWAPPED sequence."""
        if num_lookahead_slots:
            self._refuse_lookahead(num_lookahead_slots)
        num_swapped_seqs = group.num_seqs(status=SequenceStatus.SWAPPED)
        return self._alloc_status(len(self._distinct_blocks(group)) + num_swapped_seqs)

    def swap_in(self, group: SequenceGroup) -> list[tuple[int, int]]:
        """Move the SWAPPED sequences' tables back to the GPU, sharing intact: `swap_out` mirrored.

        Returns:
            (CPU block number, GPU block number), one pair for each distinct block, first seen first.
        """
        return self._swap(group.get_seqs(SequenceStatus.SWAPPED), self.cpu_allocator, self.gpu_allocator)

    def get_block_table(self, seq: Sequence) -> list[int]:
        """The sequence's block numbers, logical block 0 first. KeyError for a sequence without a table."""
        return [block.block_number for block in self.block_tables[seq.seq_id]]

    def get_num_free_gpu_blocks(self) -> int:
        """Free blocks of the GPU pool."""
        return self.gpu_allocator.get_num_free_blocks()

    def get_num_free_cpu_blocks(self) -> int:
        """Free blocks of the CPU pool."""
        return self.cpu_allocator.get_num_free_blocks()

    def access_all_blocks_in_seq(self, seq: Sequence, now: float) -> None:
        """Stamp the sequence's blocks as used at `now`: for prefix caching only, without it nothing."""
        if self.enable_caching:
            for block in self.block_tables[seq.seq_id]:
                block.last_accessed = now

    def mark_blocks_as_computed(self, group: SequenceGroup) -> None:
        """Mark the full blocks of every sequence of the group: whoever gets them by content need not compute them.

        To be called after the step that computes them has been scheduled. Without prefix caching nothing.
        """
        if self.enable_caching:
            for seq in group.get_seqs():
                for block in self.block_tables.get(seq.seq_id, [])[: seq.get_len() // self.block_size]:
                    block.computed = True

    def get_common_computed_block_ids(self, seqs: list[Sequence]) -> list[int]:
        """The leading blocks that none of `seqs` has to compute.

        The last block of a table never counts, so that at least one token is left to compute.
        """
        if not self.enable_caching:
            return []
        tables = [self.block_tables.get(seq.seq_id, [])[:-1] for seq in seqs]
        side_by_side = zip(*tables, strict=False)
        hits = takewhile(lambda blocks: len(set(blocks)) == 1 and blocks[0].computed, side_by_side)
        return [blocks[0].block_number for blocks in hits]

    def _waiting_seqs(self, group: SequenceGroup) -> list[Sequence]:
        """The group's WAITING sequences, which share one prompt."""
        waiting = group.get_seqs(SequenceStatus.WAITING)
        if not waiting:
            raise ValueError(f"request {group.request_id} has no WAITING sequence to allocate blocks for")
        if waiting[0].block_size != self.block_size:
            raise ValueError(
                f"sequence {waiting[0].seq_id} counts in blocks of {waiting[0].block_size} tokens, "
                f"the pool's blocks hold {self.block_size}"
            )
        return waiting

    def _alloc_status(self, required: int) -> AllocStatus:
        """Whether `required` GPU blocks can be taken and the watermark stay free."""
        if self.num_total_gpu_blocks - required < self.watermark_blocks:
            return AllocStatus.NEVER
        if self.gpu_allocator.get_num_free_blocks() - required >= self.watermark_blocks:
            return AllocStatus.OK
        return AllocStatus.LATER

    def _swap(self, seqs: list[Sequence], source: BlockAllocator, destination: BlockAllocator) -> list[tuple[int, int]]:
        """Move the tables of `seqs`, all or none of them; a (source, destination) pair for each distinct block."""
        self._check_swap(seqs, source, destination)
        moved: dict[PhysicalTokenBlock, PhysicalTokenBlock] = {}  # source block -> destination block
        for seq in seqs:
            self.block_tables[seq.seq_id] = self._move(self.block_tables[seq.seq_id], moved, source, destination)
        return [(block.block_number, target.block_number) for block, target in moved.items()]

    def _move(
        self,
        block_table: BlockTable,
        moved: dict[PhysicalTokenBlock, PhysicalTokenBlock],
        source: BlockAllocator,
        destination: BlockAllocator,
    ) -> BlockTable:
        """The table's counterpart in `destination`: a block met before keeps its one target, and each lets go here."""
        new_table = []
        for block in block_table:
            if block in moved:
                moved[block].ref_count += 1
            else:
                moved[block] = destination.allocate(block.block_hash, block.num_hashed_tokens)
            new_table.append(moved[block])
            source.free(block)
        return new_table

    def _check_swap(self, seqs: list[Sequence], source: BlockAllocator, destination: BlockAllocator) -> None:
        """KeyError or ValueError unless the tables of `seqs` lie with `source` and fit into `destination`."""
        num_blocks = 0
        for seq in seqs:
            num_blocks += len(self._table_on(source.device, seq))
        if num_blocks > destination.get_num_free_blocks():  # else there is room without a closer look
            blocks = distinct_blocks(self.block_tables[seq.seq_id] for seq in seqs)
            self._check_room(destination, [block.block_hash for block in blocks])

    def _free_block_table(self, block_table: BlockTable) -> None:
        """Let go of every block, front to back, on the device where the table lies: its first block tells."""
        if block_table:
            free = (self.gpu_allocator if block_table[0].device is Device.GPU else self.cpu_allocator).free
            for block in block_table:
                free(block)

    def _check_room(self, allocator: BlockAllocator, block_hashes: list[BlockHash | None]) -> None:
        """ValueError unless `allocator` can give a block for each key, each asked for once."""
        required, free = allocator.get_num_blocks_to_take(block_hashes), allocator.get_num_free_blocks()
        if required > free:
            raise ValueError(
                f"Out of memory: needs {required} blocks, the {allocator.device.name} pool has {free} free "
                f"of {allocator.get_num_total_blocks()}"
            )

    def _table_on(self, device: Device, seq: Sequence) -> BlockTable:
        """The sequence's table, which has to lie on `device`. Its first block tells: a table never mixes devices."""
        block_table = self.block_tables[seq.seq_id]
        if block_table and block_table[0].device is not device:
            where = block_table[0].device.name
            raise ValueError(f"sequence {seq.seq_id} has its blocks on the {where}, not on the {device.name}")
        return block_table

    def _refuse_lookahead(self, num_lookahead_slots: int) -> NoReturn:
        """Callers of vLLM may ask for slots of speculative tokens; here they are told that there are none."""
        raise NotImplementedError(f"num_lookahead_slots is {num_lookahead_slots}, speculation is left out here: use 0")

    def _distinct_blocks(self, group: SequenceGroup) -> list[PhysicalTokenBlock]:
        return distinct_blocks(self.block_tables[seq.seq_id] for seq in group.get_unfinished_seqs())

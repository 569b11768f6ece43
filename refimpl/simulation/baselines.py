"""How memory was managed before paging: one contiguous piece for each sequence, reserved when its prompt is admitted.

Three policies differ in how much they reserve. The managers have BlockSpaceManager's methods, so the same scheduler
drives them; pieces come from a buddy allocator, are never shared, never grow, and are never swapped, because nothing
that runs can run out of memory. With blocks of 1 token a piece is reserved to the token.

Source: PagedAttention paper (SOSP 2023), section 6.1, the baselines Orca (Max), Orca (Pow2) and Orca (Oracle), which
take their memory from a buddy allocator, too.
"""

from __future__ import annotations

from collections.abc import Callable

from refimpl.block import BlockTable, Device, PhysicalTokenBlock, num_required_blocks
from refimpl.block_manager import AllocStatus, BlockTables
from refimpl.config import CacheConfig, SchedulerConfig
from refimpl.sequence import Sequence, SequenceGroup, SequenceStatus

SlotsOf = Callable[[int, int], int]
"""(prompt tokens, output tokens that will come) -> slots to reserve."""


def reserve_max_len(cache_config: CacheConfig, scheduler_config: SchedulerConfig) -> ContiguousSpaceManager:
    """A manager that reserves max_model_len slots for every sequence, whatever comes: Orca (Max).

    >>> cache_config = CacheConfig(block_size=1, num_gpu_blocks=100, num_cpu_blocks=0)
    >>> manager = reserve_max_len(cache_config, SchedulerConfig(max_model_len=32))
    >>> group = SequenceGroup("a", [Sequence(0, [7, 8, 9], block_size=1)])
    >>> manager.allocate(group)
    >>> manager.get_num_free_gpu_blocks()
    68
    """
    max_model_len = scheduler_config.max_model_len
    return ContiguousSpaceManager(cache_config, lambda prompt_len, output_len: max_model_len)


def reserve_power_of_two(cache_config: CacheConfig, scheduler_config: SchedulerConfig) -> ContiguousSpaceManager:
    """A manager that reserves the prompt and its true output length rounded up to a power of two: Orca (Pow2).

    It reserves up to twice the output, and never beyond max_model_len.
    """
    max_model_len = scheduler_config.max_model_len

    def slots_of(prompt_len: int, output_len: int) -> int:
        return min(prompt_len + _power_of_two(output_len), max_model_len)

    return ContiguousSpaceManager(cache_config, slots_of)


def reserve_oracle(cache_config: CacheConfig, scheduler_config: SchedulerConfig) -> ContiguousSpaceManager:
    """A manager that reserves what will be used and no slot more, which nobody can know: Orca (Oracle).

    The last token of an output needs no slot.
    """
    return ContiguousSpaceManager(cache_config, lambda prompt_len, output_len: prompt_len + output_len - 1)


BASELINES = {
    "max": reserve_max_len,
    "pow2": reserve_power_of_two,
    "oracle": reserve_oracle,
}  # name -> what makes its manager of cache_config and scheduler_config


class BuddyAllocator:
    """Contiguous memory in pieces whose sizes are powers of two; a freed piece merges with its free other half.

    Owns the addresses 0 to size - 1. A size that is no power of two is cut into pieces that are, the largest first.

    Raises:
        ValueError: for a negative size.

    >>> allocator = BuddyAllocator(12)
    >>> allocator.allocate(3), allocator.allocate(8), allocator.num_free
    (8, 0, 0)
    """

    __slots__ = ("num_free", "_free", "_size")

    def __init__(self, size: int) -> None:
        if size < 0:
            raise ValueError(f"size is {size}, it must be 0 or more")
        self.num_free = size  # addresses in free pieces
        self._size = size
        self._free: list[set[int]] = [set() for _ in range(size.bit_length())]  # order -> free pieces of 2**order
        start = 0
        for order in reversed(range(size.bit_length())):
            if size >> order & 1:
                self._free[order].add(start)
                start += 1 << order

    def num_pieces(self, size: int) -> int:
        """How many pieces of `size` could be taken now."""
        order = _order(size)
        return sum(len(free) << (larger - order) for larger, free in enumerate(self._free) if larger >= order)

    def num_pieces_when_empty(self, size: int) -> int:
        """How many pieces of `size` there are in all."""
        return self._size >> _order(size)

    def allocate(self, size: int) -> int:
        """Take a piece of `size`, rounded up to a power of two, from the smallest free one; where it starts.

        Raises:
            ValueError: when no free piece is large enough.
        """
        order = _order(size)
        found = next((larger for larger in range(order, len(self._free)) if self._free[larger]), None)
        if found is None:
            raise ValueError(f"Out of memory: no free piece of {1 << order}, {self.num_free} of {self._size} are free")
        start = min(self._free[found])
        self._free[found].remove(start)
        for smaller in range(order, found):
            self._free[smaller].add(start + (1 << smaller))
        self.num_free -= 1 << order
        return start

    def free(self, start: int, size: int) -> None:
        """Give back the piece of `size` that starts at `start`, as it was taken.

        Raises:
            ValueError: when it is free already.
        """
        order = _order(size)
        if any(start >> larger << larger in free for larger, free in enumerate(self._free)):
            raise ValueError(f"Double free: the piece at {start} is free")
        self.num_free += 1 << order
        while order < len(self._free) and start ^ (1 << order) in self._free[order]:
            self._free[order].remove(start ^ (1 << order))
            start &= ~(1 << order)
            order += 1
        self._free[order].add(start)


class ContiguousSpaceManager:
    """Owns a piece of the GPU pool for each sequence, as a block table whose numbers follow each other.

    A table is the whole reservation, blocks that are empty yet included. Free blocks are all that are in no table, the
    rounding of a piece to a power of two among them. A request for several answers gets all its pieces at once; its
    branches have them when they are forked.

    Args:
        cache_config: sizes of the pool and of a block.
        slots_of: how many slots a sequence is given.

    Raises:
        ValueError: for a pool of unknown size.
    """

    watermark_blocks = 0  # what runs does not grow

    def __init__(self, cache_config: CacheConfig, slots_of: SlotsOf) -> None:
        if cache_config.num_gpu_blocks is None:
            raise ValueError("cache_config has no num_gpu_blocks yet, the manager needs it")
        self.block_size = cache_config.block_size
        self.num_total_gpu_blocks = cache_config.num_gpu_blocks
        self.num_total_cpu_blocks = cache_config.num_cpu_blocks or 0
        self.block_tables: dict[int, BlockTable] = BlockTables()  # seq_id -> block table
        self._slots_of = slots_of
        self._buddy = BuddyAllocator(self.num_total_gpu_blocks)
        self._blocks = [PhysicalTokenBlock(Device.GPU, i, self.block_size) for i in range(self.num_total_gpu_blocks)]
        self._num_free_blocks = self.num_total_gpu_blocks  # in no table
        self._set_aside: dict[int, list[int]] = {}  # seq_id -> where the pieces of its branches to come start

    def can_allocate(self, group: SequenceGroup) -> AllocStatus:
        """Whether there is a piece for each sequence that the group is going to have."""
        size, num_pieces = self._required(group)
        if self._buddy.num_pieces_when_empty(size) < num_pieces:
            return AllocStatus.NEVER
        return AllocStatus.OK if self._buddy.num_pieces(size) >= num_pieces else AllocStatus.LATER

    def allocate(self, group: SequenceGroup) -> None:
        """A piece for the group's WAITING sequence, and for each of its branches to come.

        Raises:
            ValueError: when the sequence has one already, or there are too few.
        """
        (seq,) = group.get_seqs(SequenceStatus.WAITING)
        if seq.seq_id in self.block_tables:
            raise ValueError(f"sequence {seq.seq_id} has a block table already")
        size, num_pieces = self._required(group)
        if self._buddy.num_pieces(size) < num_pieces:
            raise ValueError(f"Out of memory: {num_pieces} pieces of {size} blocks do not fit")
        starts = [self._buddy.allocate(size) for _ in range(num_pieces)]
        self._give(seq, starts[0], size)
        self._set_aside[seq.seq_id] = starts[1:]

    def fork(self, parent: Sequence, child: Sequence) -> None:
        """The child gets a piece of its own, set aside when its parent was admitted.

        Raises:
            ValueError: when the child has one already, or none is set aside.
        """
        if child.seq_id in self.block_tables:
            raise ValueError(f"sequence {child.seq_id} has a block table already")
        if not self._set_aside.get(parent.seq_id):
            raise ValueError(f"no piece is set aside for a branch of sequence {parent.seq_id}")
        self._give(child, self._set_aside[parent.seq_id].pop(), len(self.block_tables[parent.seq_id]))

    def free(self, seq: Sequence) -> None:
        """The sequence gives back its piece, and those set aside for its branches. Without a table: nothing."""
        block_table = self.block_tables.pop(seq.seq_id, [])
        if not block_table:
            return
        for block in block_table:
            block.ref_count = 0
        self._num_free_blocks += len(block_table)
        for start in (block_table[0].block_number, *self._set_aside.pop(seq.seq_id, ())):
            self._buddy.free(start, len(block_table))

    def can_append_slots(self, group: SequenceGroup) -> bool:
        """Always: a sequence has all it may need."""
        return True

    def append_slots(self, seq: Sequence) -> list[tuple[int, int]]:
        """Nothing to do, and nothing to copy.

        Raises:
            KeyError: for a sequence without a block table.
            ValueError: when it has outgrown what was reserved.
        """
        reserved = len(self.block_tables[seq.seq_id])
        if seq.n_blocks > reserved:
            raise ValueError(f"sequence {seq.seq_id} needs {seq.n_blocks} blocks, {reserved} were reserved for it")
        return []

    def get_block_table(self, seq: Sequence) -> list[int]:
        """Numbers of the blocks that the sequence's tokens fill, without those reserved behind them."""
        start = self.block_tables[seq.seq_id][0].block_number
        return list(range(start, start + seq.n_blocks))

    def get_num_free_gpu_blocks(self) -> int:
        """Blocks in no table."""
        return self._num_free_blocks

    def get_num_free_cpu_blocks(self) -> int:
        """All of them: nothing is ever swapped."""
        return self.num_total_cpu_blocks

    def get_num_unusable_blocks(self, waiting: SequenceGroup | None) -> int:
        """Free blocks of no use to anybody: what rounding took, and all the others while `waiting` does not fit."""
        rounded = self._num_free_blocks - self._buddy.num_free
        if waiting is not None and self.can_allocate(waiting) is AllocStatus.LATER:
            return self._num_free_blocks
        return rounded

    def access_all_blocks_in_seq(self, seq: Sequence, now: float) -> None:
        """Nothing: contents are not kept."""

    def mark_blocks_as_computed(self, group: SequenceGroup) -> None:
        """Nothing: contents are not kept."""

    def get_common_computed_block_ids(self, seqs: list[Sequence]) -> list[int]:
        """None: contents are not kept."""
        return []

    def _give(self, seq: Sequence, start: int, size: int) -> None:
        """The piece becomes the sequence's block table."""
        self.block_tables[seq.seq_id] = block_table = self._blocks[start : start + size]
        for block in block_table:
            block.ref_count = 1
        self._num_free_blocks -= size

    def _required(self, group: SequenceGroup) -> tuple[int, int]:
        """Blocks of a piece, and how many pieces: one for each sequence that the group is going to have."""
        (seq,) = group.get_seqs(SequenceStatus.WAITING)
        params = group.sampling_params
        num_pieces, output_len = (1, 1) if params is None else (params.num_candidates, params.max_tokens)
        num_slots = max(self._slots_of(seq.get_len(), output_len), seq.get_len())
        return num_required_blocks(num_slots, self.block_size), num_pieces


def _order(size: int) -> int:
    """The exponent of the smallest power of two that is `size` or more."""
    return (size - 1).bit_length()


def _power_of_two(size: int) -> int:
    """The smallest power of two that is `size` or more."""
    return 1 << _order(size)

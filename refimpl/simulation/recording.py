"""What a scheduler and its block manager looked like at each step, as plain values that never change.

A recording copies numbers and names, so that it stays true when the live objects have gone on. It reads them by the
names that every design has, so a learner's own scheduler and manager can be recorded, too. Pictures and the step
player are drawn from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from refimpl.block import Device

Names: TypeAlias = dict[str, tuple[str, ...]]
"""What happened, or a queue -> ids of the requests."""


@dataclass(frozen=True, slots=True)
class BlockState:
    """One block: its number on its device, how many tables are said to hold it, and whether it counts as computed."""

    block_number: int
    ref_count: int
    computed: bool = False


@dataclass(frozen=True, slots=True)
class PoolState:
    """One device's blocks.

    device: "GPU" or "CPU". num_blocks, num_free: blocks. tables: name of a sequence -> its block table on this device,
    one BlockState for each block, so that a shared block is the same object in every table. cached: numbers of free
    blocks whose content is computed and kept, ascending; they are among num_free.
    """

    device: str
    num_blocks: int
    num_free: int
    tables: dict[str, tuple[BlockState, ...]]
    cached: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a scheduler, as its worker meets it: decided, and nothing computed yet.

    number: 1 is the first that was recorded. now: seconds on the scheduler's clock. kind: what the step computes.
    waiting, running, swapped: request ids, heads of the queues first; scheduled: those that run in this step.
    num_tokens: tokens of each unfinished sequence, the newest included. gpu, cpu: the two pools. block_size: tokens.
    watermark_blocks: GPU blocks that admission leaves free. num_batched_tokens: tokens that the step computes.
    recomputed, swapped_out: request ids of those that made room, which together are `preempted`; swapped_in: those
    that came back; ignored, aborted: those that were ended. blocks_to_swap_in, blocks_to_swap_out, blocks_to_copy:
    (source, destination) block numbers. decisions: what was decided, a line of text each.

    A sequence is named after its request: "a" when it is the request's only one, "a.0", "a.1" when it is not.
    """

    number: int
    now: float
    kind: Literal["prefill", "decode", "idle"]
    waiting: tuple[str, ...]
    running: tuple[str, ...]
    swapped: tuple[str, ...]
    scheduled: tuple[str, ...]
    num_tokens: dict[str, int]
    gpu: PoolState
    cpu: PoolState
    block_size: int
    watermark_blocks: int
    num_batched_tokens: int
    recomputed: tuple[str, ...]
    swapped_out: tuple[str, ...]
    swapped_in: tuple[str, ...]
    ignored: tuple[str, ...]
    aborted: tuple[str, ...]
    blocks_to_swap_in: tuple[tuple[int, int], ...]
    blocks_to_swap_out: tuple[tuple[int, int], ...]
    blocks_to_copy: tuple[tuple[int, int], ...]
    decisions: tuple[str, ...]

    @property
    def preempted(self) -> tuple[str, ...]:
        """Request ids of those that made room for others."""
        return self.recomputed + self.swapped_out


class MemoryReader:
    """Reads the pools of one block manager, and changes nothing.

    Reads `block_tables`, the free counts and, where there are allocators, their total counts, and of a block its
    number, device, ref_count and `computed`. No allocator shows its free blocks, so the reader remembers every block
    that it has met in a table: one that nobody holds any more and that still counts as computed is cached. Blocks that
    came and went before the first reading are taken for plain free ones.

    >>> from refimpl import BlockSpaceManager, Sequence, SequenceGroup
    >>> manager = BlockSpaceManager(block_size=4, num_gpu_blocks=8, num_cpu_blocks=0)
    >>> manager.allocate(SequenceGroup("a", [Sequence(0, [1, 2, 3, 4, 5], block_size=4)]))
    >>> state = MemoryReader(manager).read(Device.GPU, {0: "a"})
    >>> state.num_free, [block.block_number for block in state.tables["a"]]
    (6, [7, 6])
    """

    def __init__(self, manager: Any) -> None:
        self.manager = manager
        self._met: dict[str, dict[int, Any]] = {device.name: {} for device in Device}  # block number -> live block

    def read(self, device: Device, names: Mapping[int, str]) -> PoolState:
        """The pool of one device as it is now; `names` maps a seq_id to its name, and may leave some out."""
        met = self._met[device.name]
        copies: dict[int, BlockState] = {}  # id of a live block -> its copy
        tables: dict[str, tuple[BlockState, ...]] = {}
        for seq_id, block_table in self.manager.block_tables.items():
            blocks = [block for block in block_table if block.device.name == device.name]
            for block in blocks:
                met[block.block_number] = block
                if id(block) not in copies:
                    copies[id(block)] = BlockState(block.block_number, block.ref_count, _is_computed(block))
            if blocks:
                tables[names.get(seq_id, f"seq {seq_id}")] = tuple(copies[id(block)] for block in blocks)
        num_free = int(getattr(self.manager, f"get_num_free_{device.name.lower()}_blocks")())
        cached = sorted(number for number, block in met.items() if block.ref_count == 0 and _is_computed(block))
        return PoolState(device.name, self._num_blocks(device, num_free, tables), num_free, tables, tuple(cached))

    def _num_blocks(self, device: Device, num_free: int, tables: Mapping[str, tuple[BlockState, ...]]) -> int:
        """Blocks of the pool; a manager that has no allocators tells by what is free and what is in tables."""
        allocator = getattr(self.manager, f"{device.name.lower()}_allocator", None)
        if allocator is not None:
            return int(allocator.get_num_total_blocks())
        return num_free + len({block.block_number for table in tables.values() for block in table})


class Recorder:
    """Owns the recorded steps of one scheduler. Invariant: a recorded step never changes.

    Args:
        scheduler: anything with `waiting`, `running`, `swapped` and `block_manager`.

    >>> from refimpl import CacheConfig, Scheduler, SchedulerConfig, Sequence, SequenceGroup
    >>> cache_config = CacheConfig(block_size=4, num_gpu_blocks=8, num_cpu_blocks=0)
    >>> scheduler = Scheduler(SchedulerConfig(max_model_len=32), cache_config)
    >>> scheduler.add_seq_group(SequenceGroup("a", [Sequence(0, [1, 2, 3, 4, 5], block_size=4)]))
    >>> recorder = Recorder(scheduler)
    >>> _, outputs = scheduler.schedule(now=0.0)
    >>> step = recorder.record(outputs, now=0.0)
    >>> step.kind, step.running, step.num_tokens, step.gpu.num_free
    ('prefill', ('a',), {'a': 5}, 6)
    """

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        self.steps: list[Step] = []
        self._memory = MemoryReader(scheduler.block_manager)
        self._queues = _queues(scheduler)  # as they were at the last step

    def record(self, outputs: Any, now: float) -> Step:
        """Add the step that `schedule` has just decided, before its tokens are appended, and return it.

        Args:
            outputs: the SchedulerOutputs; one without `aborted_seq_groups` or `decisions` will do.
            now: the time that `schedule` was given.
        """
        scheduler, manager = self.scheduler, self.scheduler.block_manager
        groups = [*scheduler.running, *scheduler.swapped, *scheduler.waiting]
        names = _names(groups)
        before, self._queues = self._queues, _queues(scheduler)
        changes = _changes(before, self._queues, outputs)
        step = Step(
            number=len(self.steps) + 1,
            now=now,
            kind="prefill" if outputs.num_prefill_groups else "decode" if outputs.scheduled_seq_groups else "idle",
            scheduled=_request_ids(entry.seq_group for entry in outputs.scheduled_seq_groups),
            num_tokens={names[seq.seq_id]: seq.get_len() for group in groups for seq in group.get_unfinished_seqs()},
            gpu=self._memory.read(Device.GPU, names),
            cpu=self._memory.read(Device.CPU, names),
            block_size=manager.block_size,
            watermark_blocks=manager.watermark_blocks,
            num_batched_tokens=outputs.num_batched_tokens,
            blocks_to_swap_in=_pairs(outputs.blocks_to_swap_in),
            blocks_to_swap_out=_pairs(outputs.blocks_to_swap_out),
            blocks_to_copy=_pairs(outputs.blocks_to_copy),
            decisions=_decisions(outputs, changes),
            **self._queues,
            **changes,
        )
        self.steps.append(step)
        return step


def _queues(scheduler: Any) -> Names:
    return {name: _request_ids(getattr(scheduler, name)) for name in ("waiting", "running", "swapped")}


def _changes(before: Names, after: Names, outputs: Any) -> Names:
    """Who went from one queue to another, and who was ended."""
    return {
        "recomputed": tuple(name for name in after["waiting"] if name in before["running"]),
        "swapped_out": tuple(name for name in after["swapped"] if name not in before["swapped"]),
        "swapped_in": tuple(name for name in after["running"] if name in before["swapped"]),
        "ignored": _request_ids(outputs.ignored_seq_groups),
        "aborted": _request_ids(getattr(outputs, "aborted_seq_groups", ())),
    }


def _is_computed(block: Any) -> bool:
    return bool(getattr(block, "computed", False))


def _request_ids(groups: Iterable[Any]) -> tuple[str, ...]:
    return tuple(str(group.request_id) for group in groups)


def _names(groups: Iterable[Any]) -> dict[int, str]:
    """seq_id -> name."""
    names = {}
    for group in groups:
        seqs = group.get_seqs()
        for place, seq in enumerate(seqs):
            names[seq.seq_id] = f"{group.request_id}.{place}" if len(seqs) > 1 else str(group.request_id)
    return names


def _pairs(pairs: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    return tuple((source, destination) for source, destination in pairs)


def _decisions(outputs: Any, changes: Names) -> tuple[str, ...]:
    """The scheduler's own log, or what can be seen from outside where it keeps none."""
    if hasattr(outputs, "decisions"):
        return tuple(map(str, outputs.decisions))
    prefilled = _request_ids(entry.seq_group for entry in outputs.scheduled_seq_groups[: outputs.num_prefill_groups])
    seen = {"prefill": prefilled, **changes}
    return tuple(f"{what.replace('_', ' ')} {name}" for what, names in seen.items() for name in names)

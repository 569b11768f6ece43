"""The real scheduler and block manager, driven by a workload; a cost model says how long each step would have taken.

The simulator does what the engine does (`refimpl.serving.engine`), without a model: it adds requests when their time
has come, carries out what is scheduled, appends tokens and frees what has ended. Of a request that has ended it keeps
nothing but counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from refimpl.block import PhysicalTokenBlock
from refimpl.config import CacheConfig, SchedulerConfig
from refimpl.scheduler import Scheduler, SchedulerOutputs, SequenceGroupMetadata
from refimpl.sequence import SamplingParams, Sequence, SequenceGroup, SequenceStatus
from refimpl.simulation.cost_model import CostModel, num_attended_pairs
from refimpl.simulation.results import SimulationResult, Slots, Tally
from refimpl.simulation.workload import NUM_CONTENTS, WorkloadRequest

_BAR_DELAY = 3.0  # seconds of work before a progress bar appears

OnStep = Callable[[Scheduler, SchedulerOutputs, float], object]
"""Called after each `schedule()`, with the scheduler, its outputs and the time."""


class ContiguousManager(Protocol):
    """What a manager tells beside BlockSpaceManager's methods, when free memory can be of no use in it."""

    def get_num_unusable_blocks(self, waiting: SequenceGroup | None) -> int:
        """Free blocks that nobody can use; `waiting` is the request at the head of the queue."""


class Simulator:
    """Runs workloads.

    Args:
        cache_config: the sizes of a block and of the two pools.
        scheduler_config: the limits of a step.
        cost_model: how long a step takes.
        block_manager: one with BlockSpaceManager's methods, of these sizes, to be used instead of a fresh one for each
            run; `refimpl.simulation.baselines` has some.
        scheduler: one with Scheduler's methods, to be used instead of a fresh one for each run, with its own manager.
        parts: makes a scheduler with its block manager for each run: `refimpl.parts.Parts`.

    Raises:
        ValueError: for pools of unknown size, more than one of parts, scheduler and block manager, or a scheduler or
            manager whose blocks have another size.

    >>> import math
    >>> from refimpl.simulation.workload import Lengths, poisson
    >>> cost_model = CostModel(0.5, 0.0, 0.0, 0.0, 0.0, kv_bytes_per_token=1)
    >>> cache_config = CacheConfig(block_size=4, num_gpu_blocks=100, num_cpu_blocks=0)
    >>> simulator = Simulator(cache_config, SchedulerConfig(max_model_len=64), cost_model)
    >>> result = simulator.run(poisson(5, rate=math.inf, prompt=Lengths(6), output=Lengths(3)))
    >>> result.finished, result.steps, result.seconds, result.memory.used
    (5, 3, 1.5, 0.875)
    """

    def __init__(
        self,
        cache_config: CacheConfig,
        scheduler_config: SchedulerConfig,
        cost_model: CostModel,
        *,
        block_manager: Any = None,
        scheduler: Any = None,
        parts: Any = None,
    ) -> None:
        if cache_config.num_gpu_blocks is None or cache_config.num_cpu_blocks is None:
            raise ValueError("cache_config has no num_gpu_blocks and num_cpu_blocks yet, a simulation needs both")
        if sum(given is not None for given in (scheduler, block_manager, parts)) > 1:
            raise ValueError("a scheduler has its block manager already, and parts make both: give one of the three")
        manager = block_manager if scheduler is None else scheduler.block_manager
        if manager is not None and manager.block_size != cache_config.block_size:
            raise ValueError(
                f"the block manager's blocks hold {manager.block_size} tokens, cache_config says "
                f"{cache_config.block_size}"
            )
        self.cache_config = cache_config
        self.scheduler_config = scheduler_config
        self.cost_model = cost_model
        self._block_manager = block_manager
        self._scheduler = scheduler
        self._parts = parts

    def run(
        self, workload: Iterable[WorkloadRequest], *, on_step: OnStep | None = None, progress: bool = False
    ) -> SimulationResult:
        """Run the workload to its end.

        Args:
            workload: requests in order of arrival.
            on_step: called after each `schedule()`, before any token is appended: queues and tables are as the worker
                sees them.
            progress: show a bar that counts the requests as they arrive.

        Raises:
            ValueError: when a request arrives before the one in front of it, or the pools are not empty.
            RuntimeError: when the scheduler gets nowhere, or blocks were not given back.
        """
        start = time.perf_counter()
        scheduler = self._scheduler
        if self._parts is not None:
            scheduler = self._parts.make_scheduler(self.scheduler_config, self.cache_config)
        elif scheduler is None:
            scheduler = Scheduler(self.scheduler_config, self.cache_config, self._block_manager)
        _check_pools(scheduler, self.cache_config)
        run = _Run(scheduler, self.cache_config, self.scheduler_config.max_model_len, self.cost_model, on_step)
        with _bar(progress) as arrived:
            run.to_the_end(_in_order(workload), arrived)
        _check_given_back(scheduler, self.cache_config)
        return run.tally.result(run.now, time.perf_counter() - start)


class _Request:
    """A request that has not ended: what is to be generated for it, and since when."""

    __slots__ = ("group", "output_len", "last_slots", "is_capped", "token_of", "first_token_time")

    def __init__(self, group: SequenceGroup, output_len: int, *, is_capped: bool, token_of: dict[int, int]) -> None:
        self.group = group
        self.output_len = output_len  # of each of its sequences, as far as max_model_len lets them go
        self.last_slots = group.get_seqs()[0].get_prompt_len() + output_len - 1  # filled at the end, but for one token
        self.is_capped = is_capped
        self.token_of = token_of  # seq_id -> the token that it generates, over and over
        self.first_token_time: float | None = None


class _Run:
    """One run: the clock, the requests that have not ended, and the tally.

    Memory is looked at once a step, at the last block of every running sequence: what a step costs depends on those
    alone.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        cache_config: CacheConfig,
        max_model_len: int,
        cost_model: CostModel,
        on_step: OnStep | None,
    ) -> None:
        self.now = 0.0
        self._scheduler = scheduler
        self._manager = scheduler.block_manager
        self._num_unusable = getattr(scheduler.block_manager, "get_num_unusable_blocks", None)
        self._block_size = cache_config.block_size
        self._num_gpu_blocks = cache_config.num_gpu_blocks or 0
        self._max_model_len = max_model_len
        self._cost_model = cost_model
        self._on_step = on_step
        self._requests: dict[str, _Request] = {}
        self._num_requests = 0  # that have arrived
        self._num_seqs = 0  # that they are going to have, which is the next seq_id
        self.tally = Tally(self._num_gpu_blocks * self._block_size)

    def to_the_end(self, workload: Iterator[WorkloadRequest], arrived: Callable[[], object]) -> None:
        """Requests arrive and steps are taken, until there are no more of either."""
        following = next(workload, None)
        if following is not None:
            self.now = self.tally.first_arrival = following.arrival_time
        while following is not None or self._scheduler.has_unfinished_seqs():
            while following is not None and following.arrival_time <= self.now:
                self._add(following)
                arrived()
                following = next(workload, None)
            got_on = self._scheduler.has_unfinished_seqs() and self._step()
            if not got_on and following is not None:
                self.now = following.arrival_time
            elif not got_on and self._scheduler.has_unfinished_seqs():
                raise RuntimeError(
                    f"{len(self._requests)} requests have not ended, and the scheduler schedules none of them"
                )

    def _add(self, arrived: WorkloadRequest) -> None:
        """Queue a request, or count why the scheduler does not take it."""
        request_id, prompt_len = str(self._num_requests), arrived.prompt_len
        self._num_requests += 1
        output_len = min(arrived.output_len, max(self._max_model_len - prompt_len, 1))
        seq = Sequence(self._num_seqs, arrived.prompt_token_ids(), self._block_size)
        params = SamplingParams(n=arrived.n, max_tokens=output_len)
        group = SequenceGroup(request_id, [seq], params, arrived.arrival_time)
        try:
            self._scheduler.add_seq_group(group)
        except ValueError as error:
            self.tally.refusals[str(error).removeprefix(f"request {request_id} ")] += 1
            return
        token_of = {seq_id: NUM_CONTENTS + seq_id for seq_id in range(self._num_seqs, self._num_seqs + arrived.n)}
        if arrived.answer is not None:
            token_of[seq.seq_id] = arrived.answer
        self._num_seqs += arrived.n
        is_capped = output_len < arrived.output_len
        self._requests[request_id] = _Request(group, output_len, is_capped=is_capped, token_of=token_of)

    def _step(self) -> bool:
        """Schedule, and do what a worker would do. Returns whether anything came of it."""
        num_swapped = len(self._scheduler.swapped)
        metadata, outputs = self._scheduler.schedule(self.now)
        if self._on_step is not None:
            self._on_step(self._scheduler, outputs, self.now)
        self._note_moves(outputs, len(self._scheduler.swapped) - num_swapped)
        if not outputs.is_empty():
            seconds = self._seconds(metadata, outputs)
            num_seqs, slots = self._running({data.request_id for data in metadata})
            self.tally.add_step(seconds, slots, len(self._scheduler.running), num_seqs)
            self.now += seconds
            self._append_tokens(metadata)
        has_ended = outputs.ignored_seq_groups or outputs.aborted_seq_groups
        return bool(not outputs.is_empty() or has_ended or outputs.preempted)

    def _note_moves(self, outputs: SchedulerOutputs, num_more_swapped: int) -> None:
        """Count who was ended and who made room, and forget those that have ended."""
        tally, block_bytes = self.tally, self._block_size * self._cost_model.kv_bytes_per_token
        for group in (*outputs.ignored_seq_groups, *outputs.aborted_seq_groups):
            del self._requests[group.request_id]
        tally.ignored += len(outputs.ignored_seq_groups)
        tally.aborted += len(outputs.aborted_seq_groups)
        if outputs.preempted:  # nobody comes back from the CPU in such a step
            tally.preemptions_swap += num_more_swapped
            tally.preemptions_recompute += outputs.preempted - num_more_swapped
        tally.bytes_swapped_out += len(outputs.blocks_to_swap_out) * block_bytes
        tally.bytes_swapped_in += len(outputs.blocks_to_swap_in) * block_bytes

    def _seconds(self, metadata: list[SequenceGroupMetadata], outputs: SchedulerOutputs) -> float:
        """How long the step takes."""
        num_swapped_blocks = len(outputs.blocks_to_swap_in) + len(outputs.blocks_to_swap_out)
        num_new = num_pairs = num_decodes = num_context = 0
        computed: set[int] = set()  # blocks that prompts of this step have computed so far
        for data in metadata:
            if data.is_prompt:
                num_cached = self._num_cached_tokens(data, computed)
                num_tokens = data.token_chunk_size - num_cached
                num_new += num_tokens
                num_pairs += num_attended_pairs(num_tokens, num_cached)
            else:
                num_decodes += len(data.seq_data)
                num_context += sum([seq.get_len() for seq in data.seq_data.values()])
        return self._cost_model.step_seconds(
            num_prefill_tokens=num_new,
            num_prefill_pairs=num_pairs,
            num_decode_tokens=num_decodes,
            num_context_tokens=num_context,
            num_swapped_bytes=num_swapped_blocks * self._block_size * self._cost_model.kv_bytes_per_token,
        )

    def _num_cached_tokens(self, data: SequenceGroupMetadata, computed: set[int]) -> int:
        """Tokens that a prompt need not compute: what the cache holds, and what another prompt of the step computes.

        As in the engine, that is whole blocks from the first on, and never the last one.
        """
        (block_table,) = data.block_tables.values()
        num_cached_blocks = len(data.computed_block_nums)
        while num_cached_blocks < len(block_table) - 1 and block_table[num_cached_blocks] in computed:
            num_cached_blocks += 1
        computed.update(block_table[: data.token_chunk_size // self._block_size])
        if self._requests[data.request_id].first_token_time is None:  # else it is computed again
            self.tally.prompt_tokens += data.token_chunk_size
            self.tally.prompt_blocks += len(block_table)
            self.tally.cached_prompt_tokens += num_cached_blocks * self._block_size
            self.tally.cached_prompt_blocks += num_cached_blocks
        return num_cached_blocks * self._block_size

    def _running(self, scheduled: set[str]) -> tuple[int, Slots]:
        """How many sequences run, and what the GPU pool's slots are.

        Only the last block of a table has empty slots, or a piece that was reserved behind it. A running request that
        is not among the `scheduled` has a newest token without a slot.
        """
        num_seqs = reserved = internal = 0
        shared: set[PhysicalTokenBlock] = set()  # last blocks that were counted, and stand in several tables
        block_tables = self._manager.block_tables
        for group in self._scheduler.running:
            last_slots = self._requests[group.request_id].last_slots
            without_slot = group.request_id not in scheduled
            for seq in group.get_seqs(SequenceStatus.RUNNING):
                num_seqs += 1
                block_table = block_tables[seq.seq_id]
                num_filled = seq.get_len() - without_slot
                num_empty = len(block_table) * self._block_size - num_filled
                if not num_empty or block_table[-1] in shared:
                    continue
                if block_table[-1].ref_count > 1:
                    shared.add(block_table[-1])
                num_to_come = min(num_empty, last_slots - num_filled)
                reserved += num_to_come
                internal += num_empty - num_to_come
        num_free = self._manager.get_num_free_gpu_blocks()
        handed_out = (self._num_gpu_blocks - num_free) * self._block_size
        return num_seqs, Slots(handed_out - reserved - internal, reserved, internal, self._num_external_slots())

    def _num_external_slots(self) -> int:
        if self._num_unusable is None:
            return 0
        waiting = self._scheduler.waiting
        return int(self._num_unusable(waiting[0] if waiting else None)) * self._block_size

    def _append_tokens(self, metadata: list[SequenceGroupMetadata]) -> None:
        """A token more for each sequence; a prompt forks first; who has all its tokens ends."""
        has_ended = False
        for data in metadata:
            request = self._requests[data.request_id]
            seqs = list(data.seq_data.values())
            if request.first_token_time is None:
                seqs += self._fork(request, seqs[0])
                request.first_token_time = self.now
                self.tally.first_token.add(self.now - request.group.arrival_time)
            for seq in seqs:
                seq.append_token_id(request.token_of[seq.seq_id])
            self.tally.generated_tokens += len(seqs)
            if seqs[0].get_output_len() >= request.output_len:
                self._finish(data.request_id, request)
                has_ended = True
        if has_ended:
            self._scheduler.free_finished_seq_groups()

    def _fork(self, request: _Request, parent: Sequence) -> list[Sequence]:
        """The other sequences of the request, which share all blocks of its first."""
        children = [parent.fork(seq_id) for seq_id in request.token_of if seq_id != parent.seq_id]
        for child in children:
            request.group.add(child)
            self._scheduler.fork_seq(parent, child)
        return children

    def _finish(self, request_id: str, request: _Request) -> None:
        """The sequences of a request, which move on together, have all their tokens."""
        assert request.first_token_time is not None
        for seq in request.group.get_unfinished_seqs():
            seq.status = SequenceStatus.FINISHED_LENGTH_CAPPED
            self._scheduler.free_seq(seq)
        self.tally.finished += 1
        self.tally.length_capped += request.is_capped
        self.tally.finished_tokens += request.output_len * len(request.token_of)
        if request.output_len > 1:
            seconds = self.now - request.first_token_time
            self.tally.per_output_token.add(seconds / (request.output_len - 1))
        del self._requests[request_id]


def _in_order(workload: Iterable[WorkloadRequest]) -> Iterator[WorkloadRequest]:
    """The workload, as long as it goes forward in time."""
    before = 0.0
    for index, request in enumerate(workload):
        if request.arrival_time < before:
            raise ValueError(
                f"request {index} arrives at {request.arrival_time} s, the one before it at {before} s: "
                f"put them in order of arrival"
            )
        before = request.arrival_time
        yield request


def _check_pools(scheduler: Scheduler, cache_config: CacheConfig) -> None:
    """ValueError unless both pools are of the sizes that cache_config says, and empty."""
    free = scheduler.block_manager.get_num_free_gpu_blocks(), scheduler.block_manager.get_num_free_cpu_blocks()
    for name, num_free, num_blocks in zip(
        ("GPU", "CPU"), free, (cache_config.num_gpu_blocks, cache_config.num_cpu_blocks), strict=True
    ):
        if num_free != num_blocks:
            raise ValueError(f"{num_free} {name} blocks are free, a run starts with all {num_blocks} of cache_config")


def _check_given_back(scheduler: Scheduler, cache_config: CacheConfig) -> None:
    """RuntimeError when the run is over and blocks are not free."""
    try:
        _check_pools(scheduler, cache_config)
    except ValueError as error:
        raise RuntimeError(f"the run is over, and blocks were not given back: {error}") from None


@contextmanager
def _bar(progress: bool) -> Iterator[Callable[[], object]]:
    """What to call for each request that arrives: a bar moves on, where one is shown."""
    if not progress:
        yield lambda: None
        return
    from tqdm.auto import tqdm

    with tqdm(unit=" requests", delay=_BAR_DELAY) as bar:
        yield bar.update

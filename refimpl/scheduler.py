"""Who runs in the next step: waiting prompts first, else the running sequences, else those that were swapped out.

The scheduler owns three queues and decides with the block manager's answers alone; every request it is given ends in
a bounded number of steps. A step is either prompts or decodes, never both. What it decided, and why, goes out with
each step.

Order of work inside one step: swap in, swap out, copy, then compute. A GPU block that a swap-out frees may be the
target of a copy in the same step.
"""

from __future__ import annotations

import enum
import time
from collections import deque
from dataclasses import dataclass, field

from refimpl.block import Device
from refimpl.block_manager import AllocStatus, BlockSpaceManager
from refimpl.config import CacheConfig, SchedulerConfig
from refimpl.sequence import Sequence, SequenceGroup, SequenceStatus

SPEED_WINDOW = 16  # steps over which a group's generation speed is taken


class PreemptionMode(enum.Enum):
    """How a running group makes room. (vLLM 0.5.4: `vllm/core/scheduler.py`, `PreemptionMode`.)

    RECOMPUTE: drop its blocks and prefill its tokens again later. SWAP: move its blocks to the CPU.
    """

    RECOMPUTE = enum.auto()
    SWAP = enum.auto()


@dataclass(slots=True)
class SchedulingBudget:
    """What a step may still hold. (vLLM 0.5.4: `vllm/core/scheduler.py`, `SchedulingBudget`; a count in today's loop.)

    Args:
        token_budget, max_num_seqs: tokens and sequences that fit into the step in all.
        num_batched_tokens, num_curr_seqs: those that are taken already.

    >>> budget = SchedulingBudget(token_budget=8, max_num_seqs=2)
    >>> budget.add(num_new_tokens=5, num_new_seqs=1)
    >>> budget.can_schedule(3, 1), budget.can_schedule(4, 1), budget.can_schedule(3, 2)
    (True, False, False)
    """

    token_budget: int
    max_num_seqs: int
    num_batched_tokens: int = 0
    num_curr_seqs: int = 0

    def can_schedule(self, num_new_tokens: int, num_new_seqs: int) -> bool:
        """Whether so many tokens and sequences more fit into the step."""
        return (
            self.num_batched_tokens + num_new_tokens <= self.token_budget
            and self.num_curr_seqs + num_new_seqs <= self.max_num_seqs
        )

    def add(self, num_new_tokens: int, num_new_seqs: int) -> None:
        """Charge them to the step."""
        self.num_batched_tokens += num_new_tokens
        self.num_curr_seqs += num_new_seqs


@dataclass(frozen=True, slots=True)
class ScheduledSequenceGroup:
    """A group that runs in this step. (vLLM 0.5.4: `vllm/core/scheduler.py`, `ScheduledSequenceGroup`.)

    token_chunk_size: tokens to compute for it, a decode counts 1.
    """

    seq_group: SequenceGroup
    token_chunk_size: int


@dataclass(frozen=True, slots=True)
class SequenceGroupMetadata:
    """What the worker is told of a scheduled group. (vLLM 0.5.4: `vllm/sequence.py`, `SequenceGroupMetadata`.)

    request_id: the group's. is_prompt: whether its tokens are a prompt's, else it is a decode. seq_data: seq_id ->
    sequence, the RUNNING ones. block_tables: seq_id -> block numbers. computed_block_nums: leading blocks whose keys
    and values are in the cache already. token_chunk_size: as in ScheduledSequenceGroup.
    """

    request_id: str
    is_prompt: bool
    seq_data: dict[int, Sequence]
    block_tables: dict[int, list[int]]
    computed_block_nums: list[int]
    token_chunk_size: int


@dataclass(frozen=True, slots=True)
class Decision:
    """One decision about one request, and the state of memory and queues at that moment, in blocks and groups.

    action: what becomes of it, in a word, such as "prefill" or "wait". reason: why.
    """

    request_id: str
    action: str
    reason: str
    num_free_gpu_blocks: int
    num_free_cpu_blocks: int
    watermark_blocks: int
    num_waiting: int
    num_running: int
    num_swapped: int

    def __str__(self) -> str:
        return (
            f"{self.action:<9} {self.request_id:<8} gpu free {self.num_free_gpu_blocks:>5} "
            f"(watermark {self.watermark_blocks})  cpu free {self.num_free_cpu_blocks:>5}  "
            f"waiting {self.num_waiting:>3} running {self.num_running:>3} swapped {self.num_swapped:>3}  {self.reason}"
        )


@dataclass(slots=True)
class SchedulerOutputs:
    """One step. (vLLM 0.5.4: `vllm/core/scheduler.py`, `SchedulerOutputs`.)

    scheduled_seq_groups: prompts first, num_prefill_groups of them. num_batched_tokens: tokens to compute, of all of
    them. blocks_to_swap_in, blocks_to_swap_out and
    blocks_to_copy: (source, destination) block numbers, to be carried out in this order. ignored_seq_groups: ended
    because they could never run. aborted_seq_groups: ended because they could not be saved. preempted: how many groups
    made room. decisions: everything that was decided, in order.

    >>> SchedulerOutputs().is_empty(), SchedulerOutputs(blocks_to_copy=[(3, 5)]).is_empty()
    (True, False)
    """

    scheduled_seq_groups: list[ScheduledSequenceGroup] = field(default_factory=list)
    num_prefill_groups: int = 0
    num_batched_tokens: int = 0
    blocks_to_swap_in: list[tuple[int, int]] = field(default_factory=list)
    blocks_to_swap_out: list[tuple[int, int]] = field(default_factory=list)
    blocks_to_copy: list[tuple[int, int]] = field(default_factory=list)
    ignored_seq_groups: list[SequenceGroup] = field(default_factory=list)
    aborted_seq_groups: list[SequenceGroup] = field(default_factory=list)
    preempted: int = 0
    decisions: list[Decision] = field(default_factory=list)

    def is_empty(self) -> bool:
        """Whether there is nothing to do for the worker."""
        return not (
            self.scheduled_seq_groups or self.blocks_to_swap_in or self.blocks_to_swap_out or self.blocks_to_copy
        )


class Scheduler:
    """Owns the queues `waiting`, `running` and `swapped`. Invariant: an unfinished group is in exactly one of them.

    Args:
        scheduler_config: the limits of a step.
        cache_config: the sizes of the two pools.
        block_manager: another manager than the one that cache_config describes.
        log_decisions: print every decision as a line of text.

    Raises:
        ValueError: when neither a block manager nor the pools' sizes are given.

    >>> cache_config = CacheConfig(block_size=4, num_gpu_blocks=8, num_cpu_blocks=0)
    >>> scheduler = Scheduler(SchedulerConfig(max_model_len=32), cache_config)
    >>> scheduler.add_seq_group(SequenceGroup("a", [Sequence(0, [1, 2, 3, 4, 5], block_size=4)]))
    >>> (metadata,), outputs = scheduler.schedule(now=0.0)
    >>> metadata.is_prompt, metadata.block_tables, outputs.num_batched_tokens
    (True, {0: [7, 6]}, 5)

    Source: vLLM 0.5.4, `vllm/core/scheduler.py`, `Scheduler`; one loop without phases in today's
    `vllm/v1/core/sched/scheduler.py`.
    """

    def __init__(
        self,
        scheduler_config: SchedulerConfig,
        cache_config: CacheConfig,
        block_manager: BlockSpaceManager | None = None,
        *,
        log_decisions: bool = False,
    ) -> None:
        self.scheduler_config = scheduler_config
        self.cache_config = cache_config
        self.block_manager = _make_block_manager(cache_config) if block_manager is None else block_manager
        self.log_decisions = log_decisions
        self.waiting: deque[SequenceGroup] = deque()
        self.running: deque[SequenceGroup] = deque()
        self.swapped: deque[SequenceGroup] = deque()
        self._seq_ids: set[int] = set()  # of every sequence that came with a group or was forked, until its group ends
        self._progress: dict[str, deque[tuple[float, int]]] = {}  # request_id -> (time, tokens) of its last steps

    def add_seq_group(self, seq_group: SequenceGroup) -> None:
        """Queue a request.

        Raises:
            ValueError: for an empty prompt, one that asks for more sequences than a step may hold, a sequence id that
                is in use, or a group that the block manager cannot count: no WAITING sequence, blocks of another size.
        """
        limit, wanted = self.scheduler_config.max_num_seqs, seq_group.get_max_num_running_seqs()
        if wanted > limit:
            raise ValueError(f"request {seq_group.request_id} asks for {wanted} sequences, max_num_seqs is {limit}")
        if not all(seq.get_len() for seq in seq_group.get_seqs()):
            raise ValueError(f"request {seq_group.request_id} has an empty prompt, it needs at least 1 token")
        for seq in seq_group.get_seqs():
            if seq.seq_id in self._seq_ids:
                raise ValueError(f"request {seq_group.request_id}: sequence {seq.seq_id} is in the scheduler already")
        self.block_manager.can_allocate(seq_group)  # raises now what it would raise in every step
        self._seq_ids.update(seq.seq_id for seq in seq_group.get_seqs())
        self.waiting.append(seq_group)

    def abort_seq_group(self, request_id: str) -> None:
        """End the request `request_id`, in whichever queue it is, and free its blocks. An unknown id: nothing."""
        for queue in (self.waiting, self.running, self.swapped):
            for seq_group in [group for group in queue if group.request_id == request_id]:
                queue.remove(seq_group)
                self._end(seq_group, SequenceStatus.FINISHED_ABORTED)

    def has_unfinished_seqs(self) -> bool:
        """Whether any request has not ended."""
        return bool(self.waiting or self.running or self.swapped)

    def get_num_unfinished_seq_groups(self) -> int:
        """Requests that have not ended."""
        return len(self.waiting) + len(self.running) + len(self.swapped)

    def fork_seq(self, parent_seq: Sequence, child_seq: Sequence) -> None:
        """The child shares its parent's blocks."""
        self.block_manager.fork(parent_seq, child_seq)
        self._seq_ids.add(child_seq.seq_id)

    def free_seq(self, seq: Sequence) -> None:
        """The sequence lets go of its blocks, wherever they lie."""
        self.block_manager.free(seq)

    def free_finished_seq_groups(self) -> None:
        """Groups that have ended leave the running queue."""
        for seq_group in self.running:
            if seq_group.is_finished():
                self._forget(seq_group)
        self.running = deque(seq_group for seq_group in self.running if not seq_group.is_finished())

    def schedule(self, now: float | None = None) -> tuple[list[SequenceGroupMetadata], SchedulerOutputs]:
        """Decide the next step.

        Args:
            now: the time, in seconds of any clock that goes forward; the system's when left out.

        Returns:
            What the worker is told of each scheduled group, and the step as a whole.
        """
        now = time.monotonic() if now is None else now
        self.free_finished_seq_groups()  # what has ended can neither run nor make room
        outputs = self._schedule(now)
        metadata = [
            self._metadata(scheduled, is_prompt=i < outputs.num_prefill_groups, now=now)
            for i, scheduled in enumerate(outputs.scheduled_seq_groups)
        ]
        # Only now: two equal prompts of one step share blocks, and neither may take the other's for computed.
        for scheduled in outputs.scheduled_seq_groups:
            self.block_manager.mark_blocks_as_computed(scheduled.seq_group)
        return metadata, outputs

    def _schedule(self, now: float) -> SchedulerOutputs:
        """The three phases: prompts; decodes if there was no prompt; swapped groups if nobody had to make room."""
        config = self.scheduler_config
        outputs = SchedulerOutputs()
        budget = SchedulingBudget(config.max_num_batched_tokens or config.max_model_len, config.max_num_seqs)
        for seq_group in self.running:
            budget.num_curr_seqs += seq_group.get_max_num_running_seqs()
        if not self.swapped:
            self._schedule_prefills(budget, outputs)
        if not outputs.scheduled_seq_groups:
            self._schedule_running(budget, outputs, now)
            if not (outputs.preempted or outputs.aborted_seq_groups):
                self._schedule_swapped(budget, outputs)
        outputs.num_batched_tokens = budget.num_batched_tokens
        return outputs

    def _schedule_prefills(self, budget: SchedulingBudget, outputs: SchedulerOutputs) -> None:
        """Admit prompts from the head of the queue, up to the first that has to wait: nobody overtakes."""
        while self.waiting:
            seq_group = self.waiting[0]
            num_new_tokens = seq_group.get_seqs(SequenceStatus.WAITING)[0].get_len()
            never = self._why_never(seq_group, num_new_tokens)
            if never is not None:
                self.waiting.popleft()
                self._ignore(seq_group, outputs, never)
                continue
            num_new_seqs = seq_group.get_max_num_running_seqs()
            if self.block_manager.can_allocate(seq_group) is AllocStatus.LATER:
                self._decide(outputs, seq_group, "wait", "its prompt needs more blocks than are free")
                break
            if not budget.can_schedule(num_new_tokens, num_new_seqs):
                self._decide(outputs, seq_group, "wait", "the step has no room for its tokens or sequences")
                break
            self.waiting.popleft()
            self.block_manager.allocate(seq_group)
            self._set_status(seq_group, SequenceStatus.WAITING, SequenceStatus.RUNNING)
            self.running.append(seq_group)
            budget.add(num_new_tokens, num_new_seqs)
            outputs.scheduled_seq_groups.append(ScheduledSequenceGroup(seq_group, num_new_tokens))
            self._decide(outputs, seq_group, "prefill", f"{num_new_tokens} tokens")
        outputs.num_prefill_groups = len(outputs.scheduled_seq_groups)

    def _why_never(self, seq_group: SequenceGroup, num_new_tokens: int) -> str | None:
        """Why the waiting group could not run even alone; None when it could."""
        config = self.scheduler_config
        limit = min(config.max_model_len, config.max_num_batched_tokens or config.max_model_len)
        if num_new_tokens > limit:
            return f"its {num_new_tokens} tokens exceed the limit of {limit}"
        if self.block_manager.can_allocate(seq_group) is AllocStatus.NEVER:
            return "its prompt needs more blocks than the pool has above the watermark"
        return None

    def _schedule_running(self, budget: SchedulingBudget, outputs: SchedulerOutputs, now: float) -> None:
        """A slot for every running sequence, oldest group first; when blocks run out, victims make room."""
        queue = deque(sorted(self.running, key=lambda seq_group: seq_group.arrival_time))
        self.running = deque()
        recomputed: list[SequenceGroup] = []
        while queue:
            seq_group = queue.popleft()
            if not self._make_room(seq_group, queue, recomputed, outputs, now):
                continue
            self._append_slots(seq_group, outputs)
            self.running.append(seq_group)
            budget.add(seq_group.num_seqs(SequenceStatus.RUNNING), 0)
            outputs.scheduled_seq_groups.append(ScheduledSequenceGroup(seq_group, 1))
            self._note_progress(seq_group, now)
        recomputed.sort(key=lambda seq_group: seq_group.arrival_time, reverse=True)
        self.waiting.extendleft(recomputed)  # newest first, so that they stand in order of arrival

    def _make_room(
        self,
        seq_group: SequenceGroup,
        queue: deque[SequenceGroup],
        recomputed: list[SequenceGroup],
        outputs: SchedulerOutputs,
        now: float,
    ) -> bool:
        """Preempt victims from `queue`, then the group itself, until it can grow; False when it was the last victim."""
        while not self.block_manager.can_append_slots(seq_group):
            victim = self._take_victim(queue, now) if queue else seq_group
            self._preempt(victim, recomputed, outputs)
            if victim is seq_group:
                return False
        return True

    def _schedule_swapped(self, budget: SchedulingBudget, outputs: SchedulerOutputs) -> None:
        """Bring swapped groups back, from the head of the queue up to the first that has to wait."""
        self.swapped = deque(sorted(self.swapped, key=lambda seq_group: seq_group.arrival_time))
        while self.swapped:
            seq_group = self.swapped[0]
            status = self.block_manager.can_swap_in(seq_group)
            if status is AllocStatus.NEVER:
                self.swapped.popleft()
                self._ignore(seq_group, outputs, "it needs more blocks than the pool has above the watermark")
                continue
            num_new_tokens = seq_group.num_seqs(SequenceStatus.SWAPPED)
            num_new_seqs = seq_group.get_max_num_running_seqs()
            if status is AllocStatus.LATER or not budget.can_schedule(num_new_tokens, num_new_seqs):
                self._decide(outputs, seq_group, "wait", "swapped out, and there is no room to come back")
                break
            if self._copies_read_free_blocks(outputs):
                self._decide(outputs, seq_group, "wait", "swapped out, and might come back over what is to be copied")
                break
            self.swapped.popleft()
            outputs.blocks_to_swap_in += self.block_manager.swap_in(seq_group)
            self._set_status(seq_group, SequenceStatus.SWAPPED, SequenceStatus.RUNNING)
            self._append_slots(seq_group, outputs)
            self.running.append(seq_group)
            budget.add(num_new_tokens, num_new_seqs)
            outputs.scheduled_seq_groups.append(ScheduledSequenceGroup(seq_group, 1))
            self._decide(outputs, seq_group, "swap in", "there is room again")

    def _copies_read_free_blocks(self, outputs: SchedulerOutputs) -> bool:
        """Whether a copy of this step reads a block that has been given back since.

        A swap in may be given that block, and is carried out before the copies.
        """
        if not outputs.blocks_to_copy:
            return False
        taken = {
            block.block_number
            for block_table in self.block_manager.block_tables.values()
            for block in block_table
            if block.device is Device.GPU
        }
        return any(source not in taken for source, _ in outputs.blocks_to_copy)

    def _append_slots(self, seq_group: SequenceGroup, outputs: SchedulerOutputs) -> None:
        """A slot for the newest token of each of the group's RUNNING sequences; what has to be copied is noted."""
        for seq in seq_group.get_seqs(SequenceStatus.RUNNING):
            outputs.blocks_to_copy += self.block_manager.append_slots(seq)

    def _take_victim(self, queue: deque[SequenceGroup], now: float) -> SequenceGroup:
        """Take the group that is to make room out of `queue`: the newest, or by the policy's own order."""
        if self.scheduler_config.policy == "longest-slowest":
            return self._take_longest_slowest(queue, now)
        return queue.pop()

    def _take_longest_slowest(self, queue: deque[SequenceGroup], now: float) -> SequenceGroup:
        victim = max(queue, key=lambda seq_group: (_total_len(seq_group), -self._speed(seq_group, now)))
        queue.remove(victim)
        return victim

    def _preempt(self, seq_group: SequenceGroup, recomputed: list[SequenceGroup], outputs: SchedulerOutputs) -> None:
        """Make a running group give up its blocks: to be recomputed, on the CPU, or for good."""
        if self._preemption_mode(seq_group) is PreemptionMode.RECOMPUTE:
            (seq,) = seq_group.get_unfinished_seqs()
            seq.status = SequenceStatus.WAITING
            self.free_seq(seq)
            seq.reset_state_for_recompute()
            recomputed.append(seq_group)
            self._decide(outputs, seq_group, "recompute", "no free block; its tokens are prefilled again later")
        elif self.block_manager.can_swap_out(seq_group):
            outputs.blocks_to_swap_out += self.block_manager.swap_out(seq_group)
            self._set_status(seq_group, SequenceStatus.RUNNING, SequenceStatus.SWAPPED)
            self.swapped.append(seq_group)
            self._decide(outputs, seq_group, "swap out", "no free block; its blocks move to the CPU")
        else:
            self._end(seq_group, SequenceStatus.FINISHED_ABORTED)
            outputs.aborted_seq_groups.append(seq_group)
            self._decide(outputs, seq_group, "abort", "no free block, and too little swap space to save it")
            return
        outputs.preempted += 1

    def _preemption_mode(self, seq_group: SequenceGroup) -> PreemptionMode:
        """As configured, else recompute while one sequence may still run; several cannot be recomputed as one."""
        mode = self.scheduler_config.preemption_mode
        if seq_group.num_unfinished_seqs() > 1 or mode == "swap":
            return PreemptionMode.SWAP
        if mode is None and seq_group.get_max_num_running_seqs() > 1:
            return PreemptionMode.SWAP
        return PreemptionMode.RECOMPUTE

    def _metadata(self, scheduled: ScheduledSequenceGroup, *, is_prompt: bool, now: float) -> SequenceGroupMetadata:
        seqs = scheduled.seq_group.get_seqs(SequenceStatus.RUNNING)
        for seq in seqs:
            self.block_manager.access_all_blocks_in_seq(seq, now)
        return SequenceGroupMetadata(
            request_id=scheduled.seq_group.request_id,
            is_prompt=is_prompt,
            seq_data={seq.seq_id: seq for seq in seqs},
            block_tables={seq.seq_id: self.block_manager.get_block_table(seq) for seq in seqs},
            computed_block_nums=self.block_manager.get_common_computed_block_ids(seqs),
            token_chunk_size=scheduled.token_chunk_size,
        )

    def _ignore(self, seq_group: SequenceGroup, outputs: SchedulerOutputs, reason: str) -> None:
        """End a group that can never run, free its blocks, and report it."""
        self._end(seq_group, SequenceStatus.FINISHED_IGNORED)
        outputs.ignored_seq_groups.append(seq_group)
        self._decide(outputs, seq_group, "ignore", reason)

    @staticmethod
    def _set_status(seq_group: SequenceGroup, before: SequenceStatus, after: SequenceStatus) -> None:
        """Every sequence of the group that was `before` is `after` from now on."""
        for seq in seq_group.get_seqs(before):
            seq.status = after

    def _end(self, seq_group: SequenceGroup, status: SequenceStatus) -> None:
        """End what has not ended yet and free its blocks."""
        for seq in seq_group.get_unfinished_seqs():
            seq.status = status
            self.free_seq(seq)
        self._forget(seq_group)

    def _forget(self, seq_group: SequenceGroup) -> None:
        """A group that has ended leaves nothing behind."""
        self._progress.pop(seq_group.request_id, None)
        self._seq_ids.difference_update(seq.seq_id for seq in seq_group.get_seqs())

    def _note_progress(self, seq_group: SequenceGroup, now: float) -> None:
        steps = self._progress.setdefault(seq_group.request_id, deque(maxlen=SPEED_WINDOW))
        steps.append((now, _total_len(seq_group)))

    def _speed(self, seq_group: SequenceGroup, now: float) -> float:
        """Tokens a second over the group's last steps; 0 where nothing has been seen of it."""
        steps = self._progress.get(seq_group.request_id)
        if not steps or now <= steps[0][0]:
            return 0.0
        return (_total_len(seq_group) - steps[0][1]) / (now - steps[0][0])

    def _decide(self, outputs: SchedulerOutputs, seq_group: SequenceGroup, action: str, reason: str) -> None:
        """Write the decision down, and print it where that was asked for."""
        manager = self.block_manager
        decision = Decision(
            seq_group.request_id,
            action,
            reason,
            manager.get_num_free_gpu_blocks(),
            manager.get_num_free_cpu_blocks(),
            manager.watermark_blocks,
            len(self.waiting),
            len(self.running),
            len(self.swapped),
        )
        outputs.decisions.append(decision)
        if self.log_decisions:
            print(decision)


def _make_block_manager(cache_config: CacheConfig) -> BlockSpaceManager:
    if cache_config.num_gpu_blocks is None or cache_config.num_cpu_blocks is None:
        raise ValueError("cache_config has no num_gpu_blocks and num_cpu_blocks yet, the scheduler needs both")
    return BlockSpaceManager(
        cache_config.block_size,
        cache_config.num_gpu_blocks,
        cache_config.num_cpu_blocks,
        enable_caching=cache_config.enable_prefix_caching,
    )


def _total_len(seq_group: SequenceGroup) -> int:
    """Tokens of all the group's unfinished sequences."""
    return sum(seq.get_len() for seq in seq_group.get_unfinished_seqs())

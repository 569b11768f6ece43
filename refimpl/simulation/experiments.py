"""The field's figures as experiments: what paging saves, what a shared prompt saves, what swapping costs.

Each one runs the real scheduler and block manager on the machine of the PagedAttention paper, OPT-13B on one A100 of
40 GB, under more load than it can take. Lessons show what comes out, tests hold it to bands.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from refimpl.config import CacheConfig, SchedulerConfig
from refimpl.scheduler import Scheduler, SchedulerOutputs
from refimpl.simulation.baselines import reserve_max_len, reserve_oracle, reserve_power_of_two
from refimpl.simulation.cost_model import GPU_OPT_13B_A100, CostModel
from refimpl.simulation.results import MemoryShares, SimulationResult
from refimpl.simulation.simulator import OnStep, Simulator
from refimpl.simulation.workload import (
    Lengths,
    Span,
    Workload,
    WorkloadRequest,
    parallel_sampling,
    poisson,
    sharegpt_like,
)

GIB = 1 << 30
BLOCK_SIZE = 16  # vLLM's default
NUM_SLOTS = 15_700  # 12 GB at 0.8 MB a token: PagedAttention paper (SOSP 2023), table 1
MAX_MODEL_LEN = 2048  # of OPT
CONTIGUOUS = {"maximum": reserve_max_len, "power of two": reserve_power_of_two, "oracle": reserve_oracle}
"""What is reserved in one piece -> what makes the manager, in the order of figure 2 of the paper."""

FIGURE_2 = {"maximum": 0.204, "power of two": 0.268, "oracle": 0.382, "blocks of 16": 0.963}
"""The paper's figure 2: share of the memory that holds tokens."""
FIGURE_13A = {"maximum": 7.00, "power of two": 9.81, "oracle": 13.62, "blocks of 16": 30.42}
"""The paper's figure 13a: requests at once, OPT-13B and ShareGPT at 2 requests a second."""


@dataclass(frozen=True, slots=True)
class Served:
    """A simulation, and how many requests it served at a time while memory was the limit.

    result: the whole run, from the first arrival to the last token. at_once: requests that run, on average over the
    steps in which another one waits. tokens_per_second: tokens generated in those steps, by the time that they took.
    """

    result: SimulationResult
    at_once: float
    tokens_per_second: float

    @property
    def memory(self) -> MemoryShares:
        """Shares of the memory handed out, over the whole run."""
        return self.result.memory


class Backlog:
    """Looks at each step of a run while a request waits; without its beginning and its end a run shows its capacity."""

    __slots__ = ("steps", "requests", "tokens", "seconds", "_since")

    def __init__(self) -> None:
        self.steps = self.requests = self.tokens = 0
        self.seconds = 0.0
        self._since: float | None = None  # when the last such step began, if it is the last step

    def __call__(self, scheduler: Scheduler, outputs: SchedulerOutputs, now: float) -> None:
        """Count one step; this is an `on_step` of `Simulator.run`."""
        if self._since is not None:
            self.seconds += now - self._since
        self._since = now if scheduler.waiting else None
        if scheduler.waiting:
            self.steps += 1
            self.requests += len(scheduler.running)
            self.tokens += sum(entry.seq_group.get_max_num_running_seqs() for entry in outputs.scheduled_seq_groups)


def serve(workload: Iterable[WorkloadRequest], simulator: Simulator) -> Served:
    """Let the simulator run the workload to its end, and look at the steps in which a request waits.

    Raises:
        ValueError: when none ever has to: the load is too small to show a limit.
    """
    backlog = Backlog()
    result = simulator.run(workload, on_step=backlog)
    if not backlog.steps:
        raise ValueError("no request ever waited: more requests are needed, or less memory")
    return Served(result, backlog.requests / backlog.steps, backlog.tokens / backlog.seconds)


def paging(
    num_requests: int = 120, *, block_size: int = BLOCK_SIZE, block_manager: Any = None, seed: int = 0
) -> Served:
    """Serve a ShareGPT-like mix out of blocks: 4 requests a second, more than the machine can.

    Args:
        num_requests: how many.
        block_size: slots of a block.
        block_manager: one of `paging_config`'s sizes, instead of a fresh BlockSpaceManager.
        seed: of the workload; equal seeds give equal requests.
    """
    simulator = _simulator(paging_config(block_size), block_manager)
    return serve(sharegpt_like(num_requests, 4.0, seed=seed), simulator)


def paging_config(block_size: int = BLOCK_SIZE) -> CacheConfig:
    """The paper's memory in blocks of this size.

    >>> paging_config().num_gpu_blocks
    981
    """
    return CacheConfig(block_size, num_gpu_blocks=NUM_SLOTS // block_size, num_cpu_blocks=0)


def reserving(policy: str, num_requests: int = 120, *, seed: int = 0) -> Served:
    """Serve the requests of `paging` out of contiguous memory; `policy` is a key of CONTIGUOUS."""
    config = paging_config(block_size=1)  # a piece is reserved to the slot
    simulator = _simulator(config, CONTIGUOUS[policy](config, _limits()))
    return serve(sharegpt_like(num_requests, 4.0, seed=seed), simulator)


def four_policies(num_requests: int = 120, *, seed: int = 0) -> dict[str, Served]:
    """Serve the same requests out of the same memory, handed out in four ways.

    Returns:
        The policy -> what came out, in the order of figure 2 of the PagedAttention paper.
    """
    served = {policy: reserving(policy, num_requests, seed=seed) for policy in CONTIGUOUS}
    return served | {"blocks of 16": paging(num_requests, seed=seed)}


@dataclass(frozen=True, slots=True)
class SharedPrompt:
    """What caching a prompt that all requests begin with is worth.

    share: of the slots that a request holds on average, those of the shared prompt. expected: how many times as many
    requests fit, by arithmetic. plain, cached: served without and with prefix caching.
    """

    share: float
    expected: float
    plain: Served
    cached: Served

    @property
    def measured(self) -> float:
        """How many times as many requests ran at once."""
        return self.cached.at_once / self.plain.at_once


PROMPT_LEN, ANSWER_LEN = 960, 128  # with half of the answer 1024 slots, which is what a request holds on average


def shared_prompt(
    system_tokens: int, num_requests: int = 150, *, own_first: bool = False, block_size: int = BLOCK_SIZE
) -> SharedPrompt:
    """Serve questions to a customer service, all after the same system prompt, without prefix caching and with it.

    Prompts of 960 tokens, the system prompt included, and answers of 128; all of them arrive at once.

    Args:
        system_tokens: length of the system prompt, 0 to 959.
        num_requests: how many.
        own_first: what is a request's own stands before the system prompt, not behind it.
        block_size: slots of a block; only whole blocks are shared.

    Raises:
        ValueError: for a system prompt that leaves no token to the request.
    """
    if not 0 <= system_tokens < PROMPT_LEN:
        raise ValueError(f"the system prompt has {system_tokens} tokens, it must be 0 or more and below {PROMPT_LEN}")
    workload = list(_questions(system_tokens, num_requests, own_first=own_first))
    plain, cached = (
        serve(workload, _simulator(dataclasses.replace(paging_config(block_size), enable_prefix_caching=caching)))
        for caching in (False, True)
    )
    held = PROMPT_LEN + ANSWER_LEN / 2
    return SharedPrompt(system_tokens / held, times_as_many(system_tokens, held), plain, cached)


def times_as_many(shared: float, held: float, num_slots: int = NUM_SLOTS) -> float:
    """How many times as many requests fit when `shared` of the slots that each holds are the same ones for all.

    c requests take shared + c * (held - shared) slots then, and not c * held.

    >>> round(times_as_many(512, held=1024, num_slots=1_000_000), 2)
    2.0
    """
    return (num_slots - shared) / (held - shared) / (num_slots / held)


def _questions(system_tokens: int, num_requests: int, *, own_first: bool) -> Iterator[WorkloadRequest]:
    system = [Span(0, system_tokens)] if system_tokens else []
    for content in range(1, num_requests + 1):
        own = [Span(content, PROMPT_LEN - system_tokens)]
        yield WorkloadRequest(0.0, tuple(own + system if own_first else system + own), ANSWER_LEN)


def squeeze(
    workload: Iterable[WorkloadRequest],
    num_gpu_blocks: int,
    *,
    cost_model: CostModel = GPU_OPT_13B_A100,
    swap_space: float | None = None,
    on_step: OnStep | None = None,
    **limits: Any,
) -> SimulationResult:
    """Serve a workload that outgrows a pool of so many blocks of 16.

    Args:
        workload: what arrives; `SUMMARIES`, `chats()`, `four_answers()`.
        num_gpu_blocks: size of the pool, which is what gpu_memory_utilization sets.
        cost_model: what a step costs; `SLOW_SWAP`, say.
        swap_space: GiB of host memory for swapped blocks; None: all that can be used.
        on_step: as of `Simulator.run`.
        limits: flags of SchedulerConfig: max_num_seqs, preemption_mode, policy.
    """
    num_cpu_blocks = 20 * num_gpu_blocks
    if swap_space is not None:
        num_cpu_blocks = int(swap_space * GIB) // (BLOCK_SIZE * cost_model.kv_bytes_per_token)
    config = CacheConfig(BLOCK_SIZE, num_gpu_blocks=num_gpu_blocks, num_cpu_blocks=num_cpu_blocks)
    scheduler_config = SchedulerConfig(max_model_len=MAX_MODEL_LEN, **limits)
    return Simulator(config, scheduler_config, cost_model).run(workload, on_step=on_step)


SUMMARIES = poisson(12, math.inf, prompt=Lengths(1500), output=Lengths(300))
"""Twelve texts of 1500 tokens to be summed up in 300: 94 blocks of 16 to come in, 113 at the end."""

SLOW_SWAP = dataclasses.replace(
    GPU_OPT_13B_A100, seconds_per_swapped_byte=10 * GPU_OPT_13B_A100.seconds_per_swapped_byte
)
"""The same machine, with a tenth of PCIe's bandwidth between the pools. Many small copies are as slow as that: figure
19a of the PagedAttention paper has them for small blocks."""


def chats(*, seed: int = 0) -> Workload:
    """40 requests for one answer each, with ShareGPT's lengths, all at once: what has to make room is recomputed."""
    return poisson(40, math.inf, seed=seed)


def four_answers(*, seed: int = 0) -> Workload:
    """24 requests for four answers each, with ShareGPT's lengths, all at once: what has to make room is swapped."""
    return parallel_sampling(24, math.inf, n=4, seed=seed)


def _limits() -> SchedulerConfig:
    return SchedulerConfig(max_model_len=MAX_MODEL_LEN)


def _simulator(config: CacheConfig, block_manager: Any = None) -> Simulator:
    return Simulator(config, _limits(), GPU_OPT_13B_A100, block_manager=block_manager)

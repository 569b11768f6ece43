"""What a simulation found: one frozen record, and a table of several.

Memory is counted in slots, a slot being room for the keys and values of one token, and each step counts for as long
as it lasts. At any moment a slot of the GPU pool is one of five things (PagedAttention paper, figure 2, and figure 3
for the words):

used: holds the keys and values of a token, those that the current step writes included; shared slots count once.
reserved: handed out and empty, and its sequence will use it before it ends.
internal: handed out and empty, and its sequence will end without it. (A sequence never needs a slot for its last
    token.)
external: free, and of no use: a running sequence cannot grow into it, and the request at the head of the queue does
    not fit. Blocks never are, because any sequence can take any block; pieces of contiguous memory are.
free: the rest. Blocks of a prefix cache that nobody holds are free, too.

Times are percentiles of a histogram whose buckets are 2 % wide, so a percentile is off by 1 % at most; nothing is kept
of a request that has finished.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

_LOG_WIDTH = math.log(1.02)  # of a bucket


class Histogram:
    """Numbers of 0 or more, by size: how many of each, not which. Percentiles are off by 1 % of themselves at most.

    >>> histogram = Histogram()
    >>> for value in range(1, 101):
    ...     histogram.add(value)
    >>> histogram.mean, abs(histogram.percentile(50) - 50) <= 0.5
    (50.5, True)
    """

    __slots__ = ("count", "_sum", "_buckets")

    def __init__(self) -> None:
        self.count = 0
        self._sum = 0.0
        self._buckets: dict[int | None, int] = {}  # i -> numbers from 1.02**i on, below 1.02**(i + 1); None: zeros

    def add(self, value: float) -> None:
        """Count one number in."""
        self.count += 1
        self._sum += value
        bucket = math.floor(math.log(value) / _LOG_WIDTH) if value > 0 else None
        self._buckets[bucket] = self._buckets.get(bucket, 0) + 1

    @property
    def mean(self) -> float:
        """The exact mean; nan without a number."""
        return self._sum / self.count if self.count else math.nan

    def percentile(self, percent: float) -> float:
        """The smallest number that `percent` of all do not exceed, give or take 1 %; nan without a number."""
        rank = math.ceil(self.count * percent / 100)
        for bucket in sorted(self._buckets, key=lambda bucket: -math.inf if bucket is None else bucket):
            rank -= self._buckets[bucket]
            if rank <= 0:
                return 0.0 if bucket is None else math.exp((bucket + 0.5) * _LOG_WIDTH)
        return math.nan


@dataclass(frozen=True, slots=True)
class MemoryShares:
    """Where memory went, as shares of 1; see the head of this file for the words."""

    used: float
    reserved: float
    internal: float
    external: float
    free: float = 0.0

    @property
    def wasted(self) -> float:
        """All that is neither used nor free: the waste of the PagedAttention paper, reservation included."""
        return self.reserved + self.internal + self.external


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """One simulation. Seconds are simulated, but for `wall_seconds`, which does not count when results are compared.

    Attributes:
        finished, ignored, aborted, refused: requests that got all their tokens; that could never run; that had to make
            room and could not be saved; that the scheduler did not take. They add up to all requests.
        refusals: the scheduler's reason -> requests that were refused for it.
        length_capped: of the finished, those that max_model_len cut short.
        steps: steps in which there was anything to do.
        seconds: from the first arrival to the end of the last step.
        busy_seconds: length of all steps together; means over time are over this time.
        prompt_tokens, generated_tokens: tokens of the prompts that were computed or found in the cache, each prompt
            once; tokens generated, those of requests that did not finish included.
        requests_per_second: finished requests by `seconds`.
        tokens_per_second: tokens generated for finished requests by `seconds`.
        time_to_first_token_mean, _p50, _p99: seconds from arrival to the end of the prompt's step.
        time_per_output_token_mean, _p50, _p99: seconds from a finished request's first token to its last, by the
            tokens after the first; requests for one token have none.
        memory: shares of the memory handed out, and of what is free and of no use.
        pool: shares of the whole GPU pool.
        preemptions_recompute, preemptions_swap: groups that made room, by how.
        bytes_swapped_out, bytes_swapped_in: bytes moved to the CPU and back.
        cached_prompt_tokens: prompt tokens that were not computed because the cache held them. Whole blocks only, and
            never a prompt's last block.
        hit_rate: cached_prompt_tokens by prompt_tokens.
        prompt_blocks, cached_prompt_blocks, block_hit_rate: the same in blocks, a partly filled one counted as one.
        peak_concurrency, mean_concurrency: requests that hold GPU memory, at most and on average over busy time.
        peak_running_seqs: the same in sequences, at most.
        peak_memory: largest share of the GPU pool that was ever handed out.
        wall_seconds: how long the simulation itself took.
    """

    finished: int
    ignored: int
    aborted: int
    refused: int
    refusals: Mapping[str, int]
    length_capped: int
    steps: int
    seconds: float
    busy_seconds: float
    prompt_tokens: int
    generated_tokens: int
    requests_per_second: float
    tokens_per_second: float
    time_to_first_token_mean: float
    time_to_first_token_p50: float
    time_to_first_token_p99: float
    time_per_output_token_mean: float
    time_per_output_token_p50: float
    time_per_output_token_p99: float
    memory: MemoryShares
    pool: MemoryShares
    preemptions_recompute: int
    preemptions_swap: int
    bytes_swapped_out: int
    bytes_swapped_in: int
    cached_prompt_tokens: int
    prompt_blocks: int
    cached_prompt_blocks: int
    peak_concurrency: int
    mean_concurrency: float
    peak_running_seqs: int
    peak_memory: float
    wall_seconds: float = field(compare=False)

    @property
    def hit_rate(self) -> float:
        """Share of the prompt tokens that the cache held; 0 without prompts."""
        return _ratio(self.cached_prompt_tokens, self.prompt_tokens)

    @property
    def block_hit_rate(self) -> float:
        """Share of the prompts' blocks that the cache held; 0 without prompts."""
        return _ratio(self.cached_prompt_blocks, self.prompt_blocks)

    @property
    def preemptions(self) -> int:
        """Groups that made room, one way or the other."""
        return self.preemptions_recompute + self.preemptions_swap

    @property
    def bytes_swapped(self) -> int:
        """Bytes moved between the pools, in both directions."""
        return self.bytes_swapped_out + self.bytes_swapped_in

    @property
    def steps_per_wall_second(self) -> float:
        """Simulated steps a second: how fast the simulation itself was."""
        return _ratio(self.steps, self.wall_seconds)

    @property
    def tokens_per_wall_second(self) -> float:
        """Generated tokens simulated a second."""
        return _ratio(self.generated_tokens, self.wall_seconds)

    def as_dict(self) -> dict[str, Any]:
        """Everything by name, rates too; plain values, fit for JSON but for nan, which stands for a missing time."""
        derived = ("hit_rate", "block_hit_rate", "preemptions", "bytes_swapped", "steps_per_wall_second")
        return asdict(self) | {name: getattr(self, name) for name in (*derived, "tokens_per_wall_second")}


class Slots(NamedTuple):
    """Slots of the GPU pool at one moment, by what they are; see the head of this file. The others are free."""

    used: int
    reserved: int
    internal: int
    external: int

    @property
    def handed_out(self) -> int:
        """Slots that belong to a sequence."""
        return self.used + self.reserved + self.internal


@dataclass(slots=True)
class Tally:
    """What a run has counted so far; `result` makes the record. Fields mean the same as in `SimulationResult`."""

    num_slots: int  # of the GPU pool
    first_arrival: float = 0.0
    finished: int = 0
    ignored: int = 0
    aborted: int = 0
    refusals: Counter[str] = field(default_factory=Counter)
    length_capped: int = 0
    steps: int = 0
    busy_seconds: float = 0.0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    finished_tokens: int = 0  # generated for requests that finished
    first_token: Histogram = field(default_factory=Histogram)
    per_output_token: Histogram = field(default_factory=Histogram)
    preemptions_recompute: int = 0
    preemptions_swap: int = 0
    bytes_swapped_out: int = 0
    bytes_swapped_in: int = 0
    cached_prompt_tokens: int = 0
    prompt_blocks: int = 0
    cached_prompt_blocks: int = 0
    request_seconds: float = 0.0  # requests that hold GPU memory, times seconds
    peak_concurrency: int = 0
    peak_running_seqs: int = 0
    slot_seconds: list[float] = field(default_factory=lambda: [0.0] * 4)  # as in Slots, times seconds
    peak_slots: int = 0

    def add_step(self, seconds: float, slots: Slots, num_requests: int, num_seqs: int) -> None:
        """A step of so many seconds, with this memory, requests and sequences (`num_seqs`) running."""
        self.steps += 1
        self.busy_seconds += seconds
        self.request_seconds += num_requests * seconds
        self.peak_concurrency = max(self.peak_concurrency, num_requests)
        self.peak_running_seqs = max(self.peak_running_seqs, num_seqs)
        self.slot_seconds = [total + count * seconds for total, count in zip(self.slot_seconds, slots, strict=True)]
        self.peak_slots = max(self.peak_slots, slots.handed_out)

    def result(self, end: float, wall_seconds: float) -> SimulationResult:
        """The record of a run that ended at `end` on the simulated clock, after `wall_seconds` on the real one."""
        seconds = end - self.first_arrival
        first_token, per_output_token = self.first_token, self.per_output_token
        return SimulationResult(
            finished=self.finished,
            ignored=self.ignored,
            aborted=self.aborted,
            refused=self.refusals.total(),
            refusals=dict(self.refusals),
            length_capped=self.length_capped,
            steps=self.steps,
            seconds=seconds,
            busy_seconds=self.busy_seconds,
            prompt_tokens=self.prompt_tokens,
            generated_tokens=self.generated_tokens,
            requests_per_second=_ratio(self.finished, seconds),
            tokens_per_second=_ratio(self.finished_tokens, seconds),
            time_to_first_token_mean=first_token.mean,
            time_to_first_token_p50=first_token.percentile(50),
            time_to_first_token_p99=first_token.percentile(99),
            time_per_output_token_mean=per_output_token.mean,
            time_per_output_token_p50=per_output_token.percentile(50),
            time_per_output_token_p99=per_output_token.percentile(99),
            memory=self._shares(sum(self.slot_seconds)),
            pool=self._shares(self.num_slots * self.busy_seconds),
            preemptions_recompute=self.preemptions_recompute,
            preemptions_swap=self.preemptions_swap,
            bytes_swapped_out=self.bytes_swapped_out,
            bytes_swapped_in=self.bytes_swapped_in,
            cached_prompt_tokens=self.cached_prompt_tokens,
            prompt_blocks=self.prompt_blocks,
            cached_prompt_blocks=self.cached_prompt_blocks,
            peak_concurrency=self.peak_concurrency,
            mean_concurrency=_ratio(self.request_seconds, self.busy_seconds),
            peak_running_seqs=self.peak_running_seqs,
            peak_memory=_ratio(self.peak_slots, self.num_slots),
            wall_seconds=wall_seconds,
        )

    def _shares(self, whole: float) -> MemoryShares:
        """The slots by what they were, as shares of `whole`, in slots times seconds."""
        used, reserved, internal, external = (_ratio(part, whole) for part in self.slot_seconds)
        free = _ratio(whole - sum(self.slot_seconds), whole)
        return MemoryShares(used, reserved, internal, external, free)


def table(results: Mapping[str, SimulationResult]) -> str:
    """Results side by side as text: a column for each, under its name, a row for each figure.

    Raises:
        ValueError: without a result.
    """
    if not results:
        raise ValueError("there are 0 results, a table needs at least 1")
    rows = [["", *results]] + [[label, *map(show, results.values())] for label, show in _ROWS]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(_line(row, widths) for row in rows)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    """Labels to the left, figures to the right."""
    first, *others = zip(cells, widths, strict=True)
    return "  ".join([first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)])


_ROWS = [
    ("requests finished", lambda r: f"{r.finished:,}"),
    ("ignored / aborted / refused", lambda r: f"{r.ignored} / {r.aborted} / {r.refused}"),
    ("steps", lambda r: f"{r.steps:,}"),
    ("seconds", lambda r: f"{r.seconds:,.1f}"),
    ("requests/s", lambda r: f"{r.requests_per_second:,.2f}"),
    ("output tokens/s", lambda r: f"{r.tokens_per_second:,.1f}"),
    ("time to first token, mean, s", lambda r: f"{r.time_to_first_token_mean:,.3f}"),
    ("time to first token, p50, s", lambda r: f"{r.time_to_first_token_p50:,.3f}"),
    ("time to first token, p99, s", lambda r: f"{r.time_to_first_token_p99:,.3f}"),
    ("time per output token, mean, ms", lambda r: f"{r.time_per_output_token_mean * 1e3:,.1f}"),
    ("time per output token, p99, ms", lambda r: f"{r.time_per_output_token_p99 * 1e3:,.1f}"),
    ("memory: used", lambda r: f"{r.memory.used:.1%}"),
    ("memory: reserved", lambda r: f"{r.memory.reserved:.1%}"),
    ("memory: internal", lambda r: f"{r.memory.internal:.1%}"),
    ("memory: external", lambda r: f"{r.memory.external:.1%}"),
    ("preempted: recompute / swap", lambda r: f"{r.preemptions_recompute:,} / {r.preemptions_swap:,}"),
    ("MiB swapped", lambda r: f"{r.bytes_swapped / 2**20:,.1f}"),
    ("hit rate, prompt tokens", lambda r: f"{r.hit_rate:.1%}"),
    ("hit rate, prompt blocks", lambda r: f"{r.block_hit_rate:.1%}"),
    ("requests at once, peak", lambda r: f"{r.peak_concurrency:,}"),
    ("requests at once, mean", lambda r: f"{r.mean_concurrency:,.1f}"),
    ("pool handed out, peak", lambda r: f"{r.peak_memory:.1%}"),
]


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0

"""What serving a model costs, and what memory management adds to it or takes away.

Every row is one workload through the whole engine: requests that run alone or together, the same long beginning with
and without prefix caching, and a pool that holds all requests or half of them. Rows take turns within a round.
Absolute times depend on the machine; compare rows of one run.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from dataclasses import asdict, dataclass

import torch

from refimpl.config import CacheConfig, SchedulerConfig
from refimpl.sequence import SamplingParams
from refimpl.serving.engine import LLMEngine
from refimpl.serving.weights import LoadedModel, load_model

BLOCK_SIZE = 16
PROMPT = 48  # tokens
SHARED = 384  # tokens of the common beginning


@dataclass(frozen=True, slots=True)
class Row:
    """One workload: its name, prompts, whether blocks are reused by content, and a pool of `num_gpu_blocks`."""

    name: str
    prompts: list[list[int]]
    num_gpu_blocks: int
    enable_prefix_caching: bool = False
    preemption_mode: str | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """What one round of a row took: its requests, generated tokens, seconds, and what memory management did.

    cache_hit_rate: share of prompt tokens that were not computed. preemptions: of groups. bytes_swapped: both ways.
    """

    requests: int
    generated_tokens: int
    seconds: float
    cache_hit_rate: float
    preemptions: int
    bytes_swapped: int

    @property
    def tokens_per_second(self) -> float:
        """Generated tokens per second, prompts included in the time."""
        return self.generated_tokens / self.seconds


def rows_of(num_requests: int, max_tokens: int, vocab_size: int) -> list[Row]:
    """The workloads, the same random tokens every time, of a vocabulary of `vocab_size`."""
    chosen = random.Random(0)

    def tokens(count: int) -> list[int]:
        return [chosen.randrange(vocab_size) for _ in range(count)]

    prompts = [tokens(PROMPT) for _ in range(num_requests)]
    shared = tokens(SHARED)
    long_prompts = [shared + tokens(BLOCK_SIZE) for _ in range(num_requests)]
    # can_append_slots wants a free block for each sequence, needed or not: so many hold them all without preemption.
    a_request, a_long_one = (-(-(length + max_tokens) // BLOCK_SIZE) + 1 for length in (PROMPT, SHARED + BLOCK_SIZE))
    all_fit, half = a_request * num_requests, a_request * max(num_requests // 2, 1)
    long_fit = a_long_one * num_requests
    return [
        Row("1 request", prompts[:1], all_fit),
        Row(f"{num_requests} requests", prompts, all_fit),
        Row("pool for half of them, recompute", prompts, half, preemption_mode="recompute"),
        Row("pool for half of them, swap", prompts, half, preemption_mode="swap"),
        Row(f"{SHARED} tokens in common, computed by each", long_prompts, long_fit),
        Row(f"{SHARED} tokens in common, prefix caching", long_prompts, long_fit, enable_prefix_caching=True),
    ]


def measure_row(model: LoadedModel, row: Row, max_tokens: int) -> Measured:
    """Run the row once on a fresh engine. With prefix caching the first prompt has been seen, the others have not."""
    needed = max(map(len, row.prompts)) + max_tokens
    engine = LLMEngine(
        model,
        CacheConfig(BLOCK_SIZE, enable_prefix_caching=row.enable_prefix_caching, num_gpu_blocks=row.num_gpu_blocks),
        SchedulerConfig(max_model_len=needed, preemption_mode=row.preemption_mode),
    )
    params = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)
    if row.enable_prefix_caching:
        engine.add_request("first", {"prompt_token_ids": row.prompts[0][:SHARED]}, SamplingParams(max_tokens=1))
        _run(engine)
    before = engine.metrics
    for index, prompt in enumerate(row.prompts):
        engine.add_request(str(index), {"prompt_token_ids": prompt}, params)
    start = time.perf_counter()
    _run(engine)
    seconds = time.perf_counter() - start
    metrics = engine.metrics
    prompt_tokens = metrics.num_prompt_tokens - before.num_prompt_tokens
    return Measured(
        requests=len(row.prompts),
        generated_tokens=len(row.prompts) * max_tokens,
        seconds=seconds,
        cache_hit_rate=metrics.num_cached_tokens / prompt_tokens,
        preemptions=metrics.num_preemptions,
        bytes_swapped=metrics.bytes_swapped_in + metrics.bytes_swapped_out,
    )


def _run(engine: LLMEngine) -> None:
    while engine.has_unfinished_requests():
        for output in engine.step(final_only=True):
            if output.error is not None:
                raise RuntimeError(output.error)


def table(names: list[str], medians: list[Measured], num_rounds: int) -> str:
    """The rows as text: their names, and the medians of their rounds."""
    lines = [
        f"CPU, {torch.get_num_threads()} threads, torch {torch.__version__}, median of {num_rounds} rounds",
        f"{'workload':<44}{'seconds':>9}{'tokens/s':>10}{'cached':>8}{'preempted':>11}{'MiB swapped':>13}",
    ]
    for name, measured in zip(names, medians, strict=True):
        lines.append(
            f"{name:<44}{measured.seconds:>9.2f}{measured.tokens_per_second:>10.1f}{measured.cache_hit_rate:>8.0%}"
            f"{measured.preemptions:>11}{measured.bytes_swapped / 2**20:>13.1f}"
        )
    return "\n".join(lines)


def run(args: argparse.Namespace) -> int:
    """Measure and print. Returns the exit code: 2 without the model, or for a count below 1."""
    for name in ("requests", "max_tokens", "rounds"):
        if getattr(args, name) < 1:
            print(f"bench: --{name.replace('_', '-')} is {getattr(args, name)}, it must be 1 or more", file=sys.stderr)
            return 2
    try:
        model = load_model(args.model)
    except (ValueError, OSError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    rows = rows_of(args.requests, args.max_tokens, model.network.config.vocab_size)
    for row in rows:
        measure_row(model, row, max_tokens=1)  # warms up
    rounds = [[measure_row(model, row, args.max_tokens) for row in rows] for _ in range(args.rounds)]
    names = [row.name for row in rows]
    if args.json:
        by_row = zip(names, zip(*rounds, strict=True), strict=True)
        json.dump({name: [asdict(measured) for measured in every] for name, every in by_row}, sys.stdout, indent=1)
        print()
        return 0
    medians = [_median(every) for every in zip(*rounds, strict=True)]
    print(table(names, medians, args.rounds))
    return 0


def _median(rounds: tuple[Measured, ...]) -> Measured:
    """The round of the median time."""
    middle = statistics.median_low(measured.seconds for measured in rounds)
    return next(measured for measured in rounds if measured.seconds == middle)

"""What attention through block tables costs beside attention over the same keys laid out in a row.

On a CPU the torch path runs against `scaled_dot_product_attention`, on CUDA the Triton kernel against the bandwidth of
a large copy, and libraries that are there beside it. Contenders take turns within a round and a ratio is formed within
its round, so what slows the machine down for a while slows both sides of it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from refimpl.device.attention import AttentionMetadata, decode_attention
from refimpl.device.kv_cache import KVCache

BLOCK_SIZE = 16
SHORT, LONG = 128, 4096  # tokens of the rows that show how cost grows with the total
_SHARE_OF_MEMORY = 6  # pools, their contiguous copy and what a path gathers: keys and values a few times over
MAX_ERROR = 1e-4  # between contenders, float32
_ROUND_SECONDS = 0.02  # a contender's least share of a round: a short call is repeated

Call = Callable[[], Tensor]
Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Heads:
    """The attention of a model: its name, layers, query heads, KV heads and elements of a head."""

    name: str
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int

    def kv_bytes(self, num_tokens: int, dtype: torch.dtype) -> int:
        """Bytes of the keys and values of some tokens, one layer.

        >>> LLAMA_8B.kv_bytes(64 * 4096, torch.bfloat16)
        1073741824
        """
        return num_tokens * 2 * self.num_kv_heads * self.head_dim * dtype.itemsize


SMOLLM2 = Heads("SmolLM2-135M", 30, 9, 3, 64)
LLAMA_8B = Heads("Llama-3-8B", 32, 32, 8, 128)


@dataclass(frozen=True, slots=True)
class Batch:
    """One decode step: a query token for each sequence, whose blocks are scattered over the pools.

    query: [num_seqs, num_heads, head_dim]. key_cache, value_cache: [num_blocks, block_size, num_kv_heads, head_dim].
    block_tables: [num_seqs, blocks of the longest], int32. context_lens: [num_seqs], int32.
    """

    query: Tensor
    key_cache: Tensor
    value_cache: Tensor
    block_tables: Tensor
    context_lens: Tensor

    @property
    def scale(self) -> float:
        """Factor of the scores."""
        return float(self.query.shape[-1] ** -0.5)

    def in_a_row(self) -> tuple[Tensor, Tensor]:
        """Keys and values as [num_seqs, num_kv_heads, context, head_dim], contiguous.

        Raises:
            ValueError: unless all lengths are equal.
        """
        context = int(self.context_lens[0])
        if not bool((self.context_lens == context).all()):
            raise ValueError(f"lengths differ: {self.context_lens.tolist()}")
        tables = self.block_tables.long()
        keys, values = (
            pool[tables].flatten(1, 2)[:, :context].transpose(1, 2).contiguous()
            for pool in (self.key_cache, self.value_cache)
        )
        return keys, values


def dense(batch: Batch, seq: int) -> Tensor:
    """Attention of sequence `seq` of the batch, in float64 over its keys in a row: [num_heads, head_dim]."""
    num_heads, head_dim = batch.query.shape[1:]
    context = int(batch.context_lens[seq])
    blocks = batch.block_tables[seq, : -(-context // batch.key_cache.shape[1])].long()
    keys, values = (pool[blocks].flatten(0, 1)[:context].double() for pool in (batch.key_cache, batch.value_cache))
    by_group = batch.query[seq].double().view(keys.shape[1], -1, head_dim)
    scores = torch.einsum("hgd,thd->hgt", by_group, keys) * batch.scale
    return torch.einsum("hgt,thd->hgd", scores.softmax(-1), values).reshape(num_heads, head_dim)


def make_batch(
    contexts: Sequence[int], heads: Heads, dtype: torch.dtype, device: str, block_size: int = BLOCK_SIZE, seed: int = 0
) -> Batch:
    """Random tokens for sequences of the lengths `contexts`, for a model with these heads, blocks in random order."""
    generator = torch.Generator(device).manual_seed(seed)
    needed = [-(-context // block_size) for context in contexts]
    order = torch.randperm(sum(needed), generator=generator, device=device, dtype=torch.int32)
    tables = torch.zeros(len(contexts), max(needed), dtype=torch.int32, device=device)
    for row, blocks in zip(tables, torch.split(order, needed), strict=True):
        row[: len(blocks)] = blocks
    cache = KVCache(1, sum(needed), 0, block_size, heads.num_kv_heads, heads.head_dim, dtype, device)
    pools = cache.key_cache(0), cache.value_cache(0)  # strided as the package's own
    for pool in pools:
        pool.normal_(generator=generator)
    query_shape = (len(contexts), heads.num_heads, heads.head_dim)
    query = torch.randn(query_shape, generator=generator, dtype=dtype, device=device)
    return Batch(query, *pools, tables, torch.tensor(contexts, dtype=torch.int32, device=device))


def sdpa_by_head(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """`scaled_dot_product_attention` that finds the KV head itself: [num_seqs, num_heads, head_dim].

    query has the same shape; keys and values are those of `Batch.in_a_row`.
    """
    return scaled_dot_product_attention(query[:, :, None], keys, values, enable_gqa=True)[:, :, 0]


def sdpa_by_group(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """The same as `sdpa_by_head`, with the heads of a group as query rows of their KV head."""
    rows = query.view(query.shape[0], keys.shape[1], -1, query.shape[2])
    return scaled_dot_product_attention(rows, keys, values).view(query.shape)


def take_turns(
    calls: Mapping[str, Callable[[], object]], rounds: int, clock: Callable[[Callable[[], object], int], float]
) -> dict[str, list[float]]:
    """Seconds of one call, by contender and round; who begins changes from round to round.

    `clock(call, times)` gives the seconds of so many calls one after another.
    """
    times = {}
    for name, call in calls.items():
        clock(call, 1)  # warm
        times[name] = max(1, round(_ROUND_SECONDS / clock(call, 1)))
    names = list(calls)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for i in range(rounds):
        for name in names[i % len(names) :] + names[: i % len(names)]:
            seconds[name].append(clock(calls[name], times[name]) / times[name])
    return seconds


def wall_clock(call: Callable[[], object], times: int) -> float:
    """Seconds that `call` takes on the host, called so many `times` one after another."""
    start = time.perf_counter()
    for _ in range(times):
        call()
    return time.perf_counter() - start


def median_ratio(numerator: Sequence[float], denominator: Sequence[float]) -> float:
    """The median of the ratios of the same round.

    >>> median_ratio([1.0, 2.0, 30.0], [1.0, 1.0, 10.0])
    2.0
    """
    return statistics.median(top / bottom for top, bottom in zip(numerator, denominator, strict=True))


def measure_beside_sdpa(heads: Heads, batch_size: int, context: int, rounds: int) -> Record:
    """Paged decode beside the faster of two ways to ask `scaled_dot_product_attention`, on the CPU in float32.

    `batch_size` sequences of `context` tokens each, for a model with these heads.
    What a step reads is worked out from the block tables in its first layer and kept for the others, so a layer's time
    is that of a step, divided by its layers.

    Returns:
        The row: shape, median milliseconds by contender, which is the `baseline`, `ratio` (median over rounds of
        paged by baseline of the same round), `ratios`, and `max_error` between paged and the baselines.
    """
    batch = make_batch([context] * batch_size, heads, torch.float32, "cpu")
    keys, values = batch.in_a_row()
    calls: dict[str, Call] = {
        "first_layer": lambda: _paged(batch, _metadata(batch)),
        "next_layer": _with_metadata(batch),
        "sdpa_by_head": partial(sdpa_by_head, batch.query, keys, values),
        "sdpa_by_group": partial(sdpa_by_group, batch.query, keys, values),
    }
    paged, _, *others = (call() for call in calls.values())
    seconds = take_turns(calls, rounds, wall_clock)
    seconds["paged"] = [
        (first + (heads.num_layers - 1) * following) / heads.num_layers
        for first, following in zip(seconds["first_layer"], seconds["next_layer"], strict=True)
    ]
    milliseconds = {name: statistics.median(values) * 1e3 for name, values in seconds.items()}
    baseline = min(("sdpa_by_head", "sdpa_by_group"), key=milliseconds.__getitem__)
    ratios = [paged_s / base_s for paged_s, base_s in zip(seconds["paged"], seconds[baseline], strict=True)]
    return {
        "heads": asdict(heads),
        "batch": batch_size,
        "context": context,
        **{f"{name}_ms": value for name, value in milliseconds.items()},
        "baseline": baseline,
        "ratio": statistics.median(ratios),
        "ratios": ratios,
        "max_error": max(float((paged - other).abs().max()) for other in others),
    }


def measure_growth(heads: Heads, batch_size: int, short: int, long: int, rounds: int) -> Record:
    """One long sequence among short ones beside a batch of long ones: cost follows the tokens, not the longest.

    Batches are of `batch_size` sequences, of `short` and `long` tokens, for a model with these heads.

    Returns:
        The row: `tokens_ratio` and `time_ratio`, mixed by all long, and the median milliseconds of both.
    """
    contexts = {"mixed": [short] * (batch_size - 1) + [long], "all_long": [long] * batch_size}
    calls = {
        name: _with_metadata(make_batch(lengths, heads, torch.float32, "cpu")) for name, lengths in contexts.items()
    }
    seconds = take_turns(calls, rounds, wall_clock)
    return {
        "heads": asdict(heads),
        "contexts": f"{batch_size - 1} of {short} and 1 of {long} beside {batch_size} of {long}",
        **{f"{name}_ms": statistics.median(values) * 1e3 for name, values in seconds.items()},
        "tokens_ratio": sum(contexts["mixed"]) / sum(contexts["all_long"]),
        "time_ratio": median_ratio(seconds["mixed"], seconds["all_long"]),
    }


def measure_cpu(batch_size: int, contexts: Sequence[int], rounds: int) -> Record:
    """Every row for the CPU: `batch_size` sequences of as many tokens as `contexts` says, row by row.

    A row whose tensors would not fit into free memory says so instead of figures.
    """
    rows: list[Record] = []
    for heads in (SMOLLM2, LLAMA_8B):
        for context in contexts:
            needed = _SHARE_OF_MEMORY * heads.kv_bytes(batch_size * context, torch.float32)
            free = _free_memory()
            if free is not None and needed > free:
                skipped = f"needs about {needed / 2**30:.1f} GiB, {free / 2**30:.1f} GiB are free"
                rows.append({"heads": asdict(heads), "batch": batch_size, "context": context, "skipped": skipped})
            else:
                rows.append(measure_beside_sdpa(heads, batch_size, context, rounds))
    return {
        "device": "cpu",
        "processor": platform.processor() or platform.machine(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "rounds": rounds,
        "beside_sdpa": rows,
        "growth": measure_growth(SMOLLM2, batch_size, min(SHORT, *contexts), max(contexts), rounds),
    }


def table(record: Record) -> str:
    """The record of `measure_cpu` as text."""
    lines = [
        f"paged decode beside scaled_dot_product_attention over contiguous keys: CPU, float32, batch "
        f"{record['beside_sdpa'][0]['batch']}, {record['threads']} threads, torch {record['torch']}, milliseconds",
        f"{'heads':<14}{'context':>8}{'first':>10}{'paged':>10}{'SDPA by head':>14}{'by group':>10}{'ratio':>8}"
        f"{'max error':>11}",
    ]
    for row in record["beside_sdpa"]:
        line = f"{row['heads']['name']:<14}{row['context']:>8}"
        if "skipped" in row:
            lines.append(f"{line}  skipped: {row['skipped']}")
            continue
        names = (("first_layer", 10), ("paged", 10), ("sdpa_by_head", 14), ("sdpa_by_group", 10))
        times = "".join(f"{row[f'{name}_ms']:>{width}.3f}" for name, width in names)
        lines.append(f"{line}{times}{row['ratio']:>8.2f}{row['max_error']:>11.1e}")
    growth = record["growth"]
    lines.append(
        f"{growth['contexts']}: {growth['mixed_ms']:.3f} beside {growth['all_long_ms']:.3f} ms, "
        f"{growth['time_ratio']:.1%} of the time for {growth['tokens_ratio']:.1%} of the tokens"
    )
    return "\n".join(lines)


def run(args: argparse.Namespace) -> int:
    """Measure and print. Returns the exit code: 1 when contenders disagree, 2 without the device asked for."""
    least = min(args.batch, args.rounds, *args.contexts)
    if least < 1:
        print(f"bench: --batch, --contexts and --rounds must be 1 or more, one is {least}")
        return 2
    if args.device == "cuda":
        from refimpl.bench import attention_cuda

        return attention_cuda.run(args)
    record = measure_cpu(args.batch, args.contexts, args.rounds)
    print(json.dumps(record, indent=2) if args.json else table(record))
    wrong = [row for row in record["beside_sdpa"] if not row.get("max_error", 0.0) <= MAX_ERROR]
    return 1 if wrong else 0


def _metadata(batch: Batch) -> AttentionMetadata:
    num_blocks, block_size = batch.key_cache.shape[:2]
    lens = batch.context_lens.tolist()
    return AttentionMetadata(batch.block_tables, [1] * len(lens), lens, num_blocks=num_blocks, block_size=block_size)


def _paged(batch: Batch, metadata: AttentionMetadata) -> Tensor:
    return decode_attention(batch.query, batch.key_cache, batch.value_cache, metadata, backend="torch")


def _with_metadata(batch: Batch) -> Call:
    return partial(_paged, batch, _metadata(batch))


def _free_memory() -> int | None:
    """Bytes of memory that nobody uses, caches counted as used; None where the system does not say."""
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None

"""The Triton decode kernel on a GPU: the share of the bandwidth of a large copy that it reaches, and others beside it.

Bandwidth is what decode attention is made of: the kernel is charged for reading each key and value once, the copy for
reading and writing. Both are measured in the same rounds, over inputs that take turns and exceed every cache, and from
CUDA graphs, so that what Python takes to launch is a figure of its own.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from refimpl.bench.attention import (
    LLAMA_8B,
    Batch,
    Call,
    Record,
    dense,
    make_batch,
    sdpa_by_group,
    sdpa_by_head,
    take_turns,
)
from refimpl.device.triton_kernels import CONFIGS_TO_TRY, DEFAULT_CONFIG, KernelConfig, decode_into, why_unavailable

COPY_BYTES = 2 * 2**30
WORKLOADS = {  # the first is the one with a target
    "64 x 4096": [4096] * 64,
    "8 x 8192": [8192] * 8,
    "1 x 32768": [32768],
    "256 x 512": [512] * 256,
    "63 x 512 and 1 x 32768": [512] * 63 + [32768],
}
HEADLINE = next(iter(WORKLOADS))
TARGET = 0.85  # of the copy's bandwidth
MAX_ERROR = 5e-3  # relative, bfloat16


def device_clock(call: Callable[[], object], times: int) -> float:
    """Seconds that `call` takes, called so many `times` one after another, between two events on the device."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    start.record()
    for _ in range(times):
        call()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1e3


def in_a_graph(calls: Iterable[Call]) -> Callable[[], None]:
    """All the calls as one CUDA graph, recorded after each has run once."""
    calls = list(calls)
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for call in calls:
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    return partial(_replay, graph, calls)


def kernel_call(batch: Batch, num_splits: int | None = None, config: KernelConfig = DEFAULT_CONFIG) -> Call:
    """The Triton kernel over a batch, as `decode_into` is told by `num_splits` and `config`."""
    return partial(
        decode_into,
        torch.empty_like(batch.query),
        batch.query,
        batch.key_cache,
        batch.value_cache,
        batch.block_tables,
        batch.context_lens,
        scale=batch.scale,
        num_splits=num_splits,
        config=config,
    )


def measure(contexts: list[int], rounds: int) -> Record:
    """One workload, sequences of the lengths `contexts`: kernel and copy, and torch's own attention where it can serve.

    That is `scaled_dot_product_attention` over contiguous keys, where lengths are equal.

    Returns:
        The row: `bytes` of keys and values, median milliseconds by contender (`kernel_eager_ms`: launched from
        Python), `copy_gb_s`, `kernel_gb_s`, `share_of_copy` (median over rounds, each ratio of one round),
        `shares`, and `relative_error` of the kernel beside a float32 computation.
    """
    batches = _batches(contexts)
    calls: dict[str, Callable[[], object]] = {
        "copy": in_a_graph([_copy()]),
        "kernel": in_a_graph(map(kernel_call, batches)),
        "kernel_eager": _each(map(kernel_call, batches)),
    }
    if len(set(contexts)) == 1:
        rows = [(batch.query, *batch.in_a_row()) for batch in batches]
        calls["sdpa_by_head"] = in_a_graph(partial(sdpa_by_head, *tensors) for tensors in rows)
        calls["sdpa_by_group"] = in_a_graph(partial(sdpa_by_group, *tensors) for tensors in rows)
    record = _figures(calls, batches, rounds)
    return record | {"relative_error": relative_error(kernel_call(batches[0])(), batches[0])}


def measure_configs(rounds: int) -> Record:
    """The headline workload under every configuration and several numbers of splits."""
    from triton.runtime.errors import OutOfResources

    batches = _batches(WORKLOADS[HEADLINE])
    variants: dict[str, tuple[int | None, KernelConfig]] = {_label(config): (None, config) for config in CONFIGS_TO_TRY}
    variants |= {f"default, {splits} splits": (splits, DEFAULT_CONFIG) for splits in (1, 2, 3, 4, 8, 16)}
    calls: dict[str, Callable[[], object]] = {"copy": in_a_graph([_copy()])}
    skipped = {}
    for name, (num_splits, config) in variants.items():
        try:
            calls[name] = in_a_graph(kernel_call(batch, num_splits, config) for batch in batches)
        except OutOfResources as error:  # another card than the configuration was made for
            skipped[name] = str(error)
    seconds = take_turns(calls, rounds, device_clock)
    shares = {name: statistics.median(_shares(seconds, name, batches)) for name in calls if name != "copy"}
    return {"share_of_copy": dict(sorted(shares.items(), key=lambda item: -item[1])), "skipped": skipped}


def measure_flashinfer(rounds: int) -> Record:
    """FlashInfer's paged decode beside the kernel, the same pools and tables; skipped where it is not installed."""
    try:
        flashinfer = import_module("flashinfer")
    except ImportError as error:
        return {"skipped": str(error)}
    batches = _batches(WORKLOADS[HEADLINE])

    def call(batch: Batch) -> Call:
        blocks_each = batch.block_tables.shape[1]
        wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
            torch.empty(128 * 2**20, dtype=torch.uint8, device="cuda"), "HND", use_tensor_cores=True
        )
        num_seqs, block_size = len(batch.query), batch.key_cache.shape[1]
        wrapper.plan(
            torch.arange(0, num_seqs * blocks_each + 1, blocks_each, dtype=torch.int32, device="cuda"),
            batch.block_tables.flatten(),
            torch.full((num_seqs,), block_size, dtype=torch.int32, device="cuda"),
            batch.query.shape[1],
            *batch.key_cache.shape[2:],
            block_size,
            q_data_type=batch.query.dtype,
            kv_data_type=batch.key_cache.dtype,
        )
        return partial(wrapper.run, batch.query, (batch.key_cache.transpose(1, 2), batch.value_cache.transpose(1, 2)))

    return _beside_kernel("flashinfer", [call(batch) for batch in batches], batches, rounds)


def measure_flex(rounds: int) -> Record:
    """FlexAttention over contiguous keys beside the kernel; skipped where this torch has none."""
    try:
        from torch.nn.attention.flex_attention import flex_attention
    except ImportError as error:
        return {"skipped": str(error)}
    batches = _batches(WORKLOADS[HEADLINE])
    compiled: Any = torch.compile(flex_attention)

    def call(batch: Batch) -> Call:
        keys, values = batch.in_a_row()
        return lambda: compiled(batch.query[:, :, None], keys, values, enable_gqa=True)[:, :, 0]

    return _beside_kernel("flex_attention", [call(batch) for batch in batches], batches, rounds)


def no_cuda() -> str | None:
    """Why nothing can be measured here, in one line, or None."""
    if not torch.cuda.is_available():
        return f"torch {torch.__version__} finds no CUDA device"
    return why_unavailable(torch.empty(0, dtype=torch.bfloat16, device="cuda"))


def table(rows: dict[str, Record]) -> str:
    """Records of `measure`, by workload, as text."""
    heading = f"bfloat16, {LLAMA_8B.num_heads} query heads, {LLAMA_8B.num_kv_heads} KV heads, {LLAMA_8B.head_dim}"
    lines = [
        f"{heading}: milliseconds, and GB/s of keys and values read beside a copy of {COPY_BYTES / 2**30:.0f} GiB",
        f"{'sequences x tokens':<26}{'kernel':>9}{'launched':>10}{'by head':>10}{'by group':>10}"
        f"{'GB/s':>8}{'copy':>8}{'share':>8}{'error':>9}",
    ]
    for name, row in rows.items():
        times = "".join(
            f"{row[key]:>{width}.3f}" if key in row else f"{'-':>{width}}"
            for key, width in (
                ("kernel_ms", 9),
                ("kernel_eager_ms", 10),
                ("sdpa_by_head_ms", 10),
                ("sdpa_by_group_ms", 10),
            )
        )
        rates = f"{row['kernel_gb_s']:>8.0f}{row['copy_gb_s']:>8.0f}{row['share_of_copy']:>8.1%}"
        lines.append(f"{name:<26}{times}{rates}{row['relative_error']:>9.1e}")
    return "\n".join(lines)


def run(args: argparse.Namespace) -> int:
    """Measure every workload and print. Returns the exit code: 1 for a wrong result, 2 without CUDA."""
    reason = no_cuda()
    if reason:
        print(f"bench: {reason}; nothing was measured")
        return 2
    rows = {name: measure(contexts, args.rounds) for name, contexts in WORKLOADS.items()}
    print(json.dumps({"device": torch.cuda.get_device_name(), "rows": rows}, indent=2) if args.json else table(rows))
    return 0 if all(row["relative_error"] <= MAX_ERROR for row in rows.values()) else 1


def relative_error(output: Tensor, batch: Batch) -> float:
    """The largest over sequences of |output - exact| / |exact|, the exact one computed by `dense` from the batch.

    output: [num_seqs, num_heads, head_dim].
    """
    errors = []
    for seq in range(0, len(batch.query), max(1, len(batch.query) // 8)):  # eight of them will do
        exact = dense(batch, seq)
        errors.append(float((output[seq].double() - exact).norm() / exact.norm()))
    return max(errors)


def _replay(graph: torch.cuda.CUDAGraph, calls: list[Call]) -> None:
    """Replay the graph; `calls` own the tensors of which it knows the addresses alone."""
    graph.replay()


def _batches(contexts: list[int]) -> list[Batch]:
    return [make_batch(contexts, LLAMA_8B, torch.bfloat16, "cuda", seed=seed) for seed in range(2)]


def _copy() -> Call:
    source = torch.randint(0, 2**31 - 1, (COPY_BYTES // 4,), dtype=torch.int32, device="cuda")
    return partial(torch.empty_like(source).copy_, source)


def _each(calls: Iterable[Call]) -> Callable[[], None]:
    calls = list(calls)

    def run_each() -> None:
        for call in calls:
            call()

    return run_each


def _beside_kernel(name: str, others: list[Call], batches: list[Batch], rounds: int) -> Record:
    calls: dict[str, Callable[[], object]] = {
        "copy": in_a_graph([_copy()]),
        "kernel": in_a_graph(map(kernel_call, batches)),
        name: _each(others),
    }
    return _figures(calls, batches, rounds) | {"relative_error": relative_error(others[0](), batches[0])}


def _shares(seconds: dict[str, list[float]], name: str, batches: list[Batch]) -> list[float]:
    """By round: the bandwidth of reading the batches' keys and values by that of the copy."""
    read = len(batches) * _bytes(batches[0])
    return [read / own / (2 * COPY_BYTES / copy) for own, copy in zip(seconds[name], seconds["copy"], strict=True)]


def _bytes(batch: Batch) -> int:
    return LLAMA_8B.kv_bytes(int(batch.context_lens.sum()), batch.key_cache.dtype)


def _figures(calls: dict[str, Callable[[], object]], batches: list[Batch], rounds: int) -> Record:
    seconds = take_turns(calls, rounds, device_clock)
    median = {
        name: statistics.median(values) / (1 if name == "copy" else len(batches)) for name, values in seconds.items()
    }
    shares = _shares(seconds, "kernel", batches)
    return {
        "bytes": _bytes(batches[0]),
        **{f"{name}_ms": value * 1e3 for name, value in median.items()},
        "copy_gb_s": 2 * COPY_BYTES / median["copy"] / 1e9,
        "kernel_gb_s": _bytes(batches[0]) / median["kernel"] / 1e9,
        "share_of_copy": statistics.median(shares),
        "shares": shares,
    }


def _label(config: KernelConfig) -> str:
    return (
        f"{config.tile_bytes // 1024} KiB tiles, {config.num_warps} warps, {config.num_stages} stages, "
        f"{config.programs_per_sm} a multiprocessor"
    )

"""`make gpu-check`: what can only be known on a GPU, checked and measured there, and written down.

The same checks run on any device for which the kernel is available, so that the check itself is tested without a GPU;
what is claimed of one comes from the files that this module writes. Each part stands alone: one that fails is recorded
with its error and the rest goes on.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import re
import subprocess
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from itertools import cycle

import torch
from torch import Tensor

from refimpl.bench import attention_cuda
from refimpl.bench.attention import Batch, Record, dense
from refimpl.device.kv_cache import KVCache
from refimpl.device.triton_kernels import decode_into
from refimpl.sequence import Sequence
from refimpl.serving.llama import Llama, LlamaConfig, weight_shapes
from refimpl.serving.model_runner import prepare_step

# Relative, |output - exact| / |exact| of a sequence: the rounding of the dtype, and of weights in it.
TOLERANCES = {torch.float32: 1e-5, torch.float16: 1e-3, torch.bfloat16: 5e-3}
MODEL_TOLERANCE = 1e-4  # of logits in float32, behind two layers, between two devices
HEADS = ((32, 8), (9, 3), (8, 8), (64, 1))
LAYOUTS = ("in a row", "interleaved", "heads first")

Attention = Callable[[Tensor, Batch, int | None], Tensor]  # (output to write, batch, num_splits)


@dataclass(frozen=True, slots=True)
class Case:
    """One call of the kernel to check: sequences of the lengths `contexts`, heads, and what the kernel is told.

    `layout` is one of LAYOUTS, `num_splits` None where the kernel may choose. `spare_blocks` lie before those in use,
    `spare_columns` behind in the table.
    """

    dtype: torch.dtype
    head_dim: int
    block_size: int
    contexts: tuple[int, ...]
    num_heads: int = 32
    num_kv_heads: int = 8
    num_splits: int | None = None
    layout: str = "in a row"
    table_dtype: torch.dtype = torch.int32
    spare_blocks: int = 3
    spare_columns: int = 0

    @property
    def name(self) -> str:
        """The case in words."""
        dtype = str(self.dtype).removeprefix("torch.")
        splits = "" if self.num_splits is None else f", {self.num_splits} splits"
        spare = f", {self.spare_blocks} spare blocks" if self.spare_blocks > 3 else ""
        wide = f", {self.spare_columns} spare columns" if self.spare_columns else ""
        return (
            f"{dtype}, head_dim {self.head_dim}, B {self.block_size}, heads {self.num_heads}/{self.num_kv_heads}, "
            f"{self.layout}{splits}{spare}{wide}, contexts {' '.join(map(str, self.contexts))}"
        )


def cases() -> Iterator[Case]:
    """Every combination of dtype, head_dim and block size, heads and layouts in turn, and some that stand alone."""
    heads, layouts, table_dtypes = cycle(HEADS), cycle(LAYOUTS), cycle((torch.int32, torch.int64))
    for dtype in TOLERANCES:
        for head_dim in (64, 80, 128):
            for size in (1, 16, 32):
                contexts = tuple(sorted({0, 1, size - 1, size, size + 1, 1000, 32768}))
                yield Case(
                    dtype, head_dim, size, contexts, *next(heads), layout=next(layouts), table_dtype=next(table_dtypes)
                )
    plain = Case(torch.bfloat16, 128, 16, (4096, 17, 0, 1000))
    for num_splits in (1, 2, 7, 1000):
        yield replace(plain, num_splits=num_splits)
    yield replace(plain, spare_columns=8192)
    # D08: the blocks in use lie behind element 2**31 of their pools, 4 GiB each.
    yield replace(plain, spare_blocks=2**31 // (16 * 8 * 128))
    yield replace(plain, dtype=torch.float16, num_heads=8, head_dim=96)
    yield replace(plain, head_dim=256)
    yield replace(plain, contexts=(512,) * 300)


def make_case(case: Case, device: str) -> Batch:
    """A batch for the case: NaN in every slot that holds no token of it, and -1 in entries of no block."""
    generator = torch.Generator(device).manual_seed(0)
    needed = [-(-context // case.block_size) for context in case.contexts]
    num_blocks = sum(needed) + case.spare_blocks
    pools = _empty_pools(case, num_blocks, device)
    order = num_blocks - 1 - torch.randperm(sum(needed), generator=generator, device=device)
    shape = (len(needed), max([*needed, 1]) + case.spare_columns)
    tables = torch.full(shape, -1, dtype=case.table_dtype, device=device)
    for row, blocks, context in zip(tables, torch.split(order, needed), case.contexts, strict=True):
        row[: len(blocks)] = blocks
        positions = torch.arange(context, device=device)
        for pool in pools:
            token_shape = (context, case.num_kv_heads, case.head_dim)
            tokens = torch.randn(token_shape, generator=generator, dtype=case.dtype, device=device)
            pool[blocks[positions // case.block_size], positions % case.block_size] = tokens
    query_shape = (len(needed), case.num_heads, case.head_dim)
    query = torch.randn(query_shape, generator=generator, dtype=case.dtype, device=device)
    return Batch(query, *pools, tables, torch.tensor(case.contexts, dtype=case.table_dtype, device=device))


def run_kernel(output: Tensor, batch: Batch, num_splits: int | None = None) -> Tensor:
    """The kernel under check: it attends over a batch, as `decode_into` does, with so many splits."""
    tensors = batch.query, batch.key_cache, batch.value_cache, batch.block_tables, batch.context_lens
    return decode_into(output, *tensors, scale=batch.scale, num_splits=num_splits)


def check_case(case: Case, device: str, attention: Attention = run_kernel) -> Record:
    """The answer to a case, written over NaN, beside a float64 computation, sequence by sequence.

    `attention` is called as `run_kernel` is.

    Returns:
        `error` (the largest of a sequence, relative; infinite for NaN, or for a row of length 0 that is not exactly
        zero), `tolerance`, `passed`.
    """
    batch = make_case(case, device)
    output = attention(torch.full_like(batch.query, torch.nan), batch, case.num_splits)
    errors = [_error(output[seq], dense(batch, seq)) for seq in range(len(output))]
    tolerance = TOLERANCES[case.dtype]
    return {"error": max(errors), "tolerance": tolerance, "passed": max(errors) <= tolerance}


def check_physical_order(case: Case, device: str, attention: Attention = run_kernel) -> Record:
    """D13: the tokens of a case in other blocks, ten times: not one bit differs. `attention` is as `run_kernel`."""
    batch = make_case(case, device)
    expected = attention(torch.empty_like(batch.query), batch, None)
    different = 0
    for seed in range(10):
        order = torch.randperm(len(batch.key_cache), generator=torch.Generator().manual_seed(seed)).to(device)
        moved = replace(
            batch,
            key_cache=batch.key_cache[order],
            value_cache=batch.value_cache[order],
            block_tables=torch.argsort(order)[batch.block_tables.long()],
        )
        different += not torch.equal(attention(torch.empty_like(batch.query), moved, None), expected)
    return {"different": different, "passed": different == 0}


def check_large_scores(device: str, dtype: torch.dtype, attention: Attention = run_kernel) -> Record:
    """D17: query and keys of 120 have products of 921,600, beyond float16; the answer is the mean of two values.

    `attention` is called as `run_kernel` is.
    """
    batch = make_case(Case(dtype, 64, 16, (2,), 1, 1), device)
    batch.query.fill_(120.0)
    batch.key_cache.fill_(120.0)
    batch.value_cache[:, 0], batch.value_cache[:, 1] = 1.0, 4.0
    values = sorted(set(attention(torch.empty_like(batch.query), batch, None).flatten().tolist()))
    return {"values": values, "passed": values == [2.5]}


def check_no_waiting(device: str) -> Record:
    """The kernel is launched without the host waiting for the device: torch raises where it would."""
    batch = make_case(Case(torch.bfloat16, 128, 16, (1000, 33, 0)), device)
    output = run_kernel(torch.empty_like(batch.query), batch)
    torch.cuda.set_sync_debug_mode("error")
    try:
        again = run_kernel(torch.empty_like(batch.query), batch)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return {"passed": torch.equal(output, again)}


def check_swaps(
    device: str,
    make_cache: Callable[..., KVCache] = KVCache,
    *,
    dtype: torch.dtype = torch.bfloat16,
    num_blocks: int = 256,
    rounds: int = 100,
    attention: Attention = run_kernel,
) -> Record:
    """Steps of swap in, swap out, copy, compute, none of which waits, beside the same on plain tensors on the CPU.

    In each step blocks that go out are overwritten by copies at once, and host blocks that come in are overwritten by
    those that go out, so a transfer that is late or early is seen: in the attention of that very step, and at the end
    in both pools, bit for bit. `rounds` is the number of steps, `attention` is called as `run_kernel` is.
    """
    shape, layers = (16, 2, 64), 2  # block_size, num_kv_heads, head_dim
    cache = make_cache(layers, num_blocks, num_blocks, *shape, dtype, device)
    mirror = KVCache(layers, num_blocks, num_blocks, *shape, dtype, "cpu")
    generator, chooser = torch.Generator().manual_seed(0), random.Random(0)
    slots = torch.arange(num_blocks * shape[0])
    for layer in range(layers):
        tokens = torch.randn(2, len(slots), *shape[1:], generator=generator).to(dtype)
        mirror.write(layer, tokens[0], tokens[1], slots)
        cache.write(layer, tokens[0].to(device), tokens[1].to(device), slots)
    wrong_steps = []
    for step in range(rounds):
        plan = _plan_step(chooser, num_blocks)
        for pools in (cache, mirror):
            pools.swap_in(plan["in"])
            pools.swap_out(plan["out"])
            pools.copy(plan["copy"])
        error = _attend_in_step(cache, mirror, generator, step % layers, attention)
        if not error <= TOLERANCES[dtype]:
            wrong_steps.append({"step": step, "error": error})
    same_pools = torch.equal(cache.gpu.cpu(), mirror.gpu), torch.equal(cache.cpu, mirror.cpu)
    return {"wrong_steps": wrong_steps, "same_pools": same_pools, "passed": not wrong_steps and all(same_pools)}


def check_model(device: str) -> Record:
    """A small random Llama in float32: prompts, one of them behind a cached prefix, then tokens one by one.

    Every step's logits are compared with those of the CPU, which chooses the tokens.
    """
    config = LlamaConfig(
        vocab_size=97,
        hidden_size=256,
        intermediate_size=384,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        rms_norm_eps=1e-5,
        rope_theta=1e4,
        max_position_embeddings=128,
        tie_word_embeddings=True,
        eos_token_ids=(),
    )
    generator = torch.Generator().manual_seed(0)
    weights = {name: torch.randn(shape, generator=generator) / 16 for name, shape in weight_shapes(config).items()}
    sides = []
    for side in ("cpu", device):
        network = Llama(config, {name: tensor.to(side) for name, tensor in weights.items()})
        sides.append((network, KVCache(2, 24, 0, 16, 2, 64, torch.float32, side)))
    seqs = [Sequence(0, range(5), 16), Sequence(1, range(33), 16)]
    tables = [[7, 3], [11, 2, 19]]
    error = 0.0
    for new_tokens in (seqs[1:], *[seqs] * 9):  # the second prompt alone, then as a cached prefix of itself
        logits, found = (
            network.forward(prepare_step(new_tokens, tables[-len(new_tokens) :], cache), cache).cpu()
            for network, cache in sides
        )
        error = max(error, float((found - logits).norm() / logits.norm()))
        for seq, token in zip(new_tokens, logits.argmax(-1).tolist(), strict=True):
            seq.num_computed_tokens = seq.get_len()
            seq.append_token_id(token)
        if len(new_tokens) == 1:
            seqs[1].num_computed_tokens = 32
    return {"relative_error": error, "passed": error <= MODEL_TOLERANCE}


def check_everything(device: str = "cuda") -> dict[str, Record]:
    """Every check, by name."""
    checks = {case.name: _attempt(partial(check_case, case, device)) for case in cases()}
    for dtype in TOLERANCES:
        name = str(dtype).removeprefix("torch.")
        checks[f"physical order, {name}"] = _attempt(
            partial(check_physical_order, Case(dtype, 64, 16, (1000, 33)), device)
        )
        checks[f"large scores, {name}"] = _attempt(partial(check_large_scores, device, dtype))
    checks["launched without waiting"] = _attempt(partial(check_no_waiting, device))
    checks["a model's steps"] = _attempt(partial(check_model, device))
    checks["swap in, swap out, copy, compute"] = _attempt(partial(check_swaps, device))
    return checks


def measure_everything(rounds: int, tune: bool) -> dict[str, Record]:
    """Every figure, by name, each a median of `rounds`: the workloads, and other libraries where they are there.

    With `tune` the kernel's configurations are measured, too.
    """
    figures = {
        name: _attempt(partial(attention_cuda.measure, contexts, rounds))
        for name, contexts in attention_cuda.WORKLOADS.items()
    }
    figures["flashinfer"] = _attempt(partial(attention_cuda.measure_flashinfer, rounds))
    figures["flex_attention"] = _attempt(partial(attention_cuda.measure_flex, rounds))
    if tune:
        figures["configurations"] = _attempt(partial(attention_cuda.measure_configs, rounds))
    return figures


def environment() -> Record:
    """Card, driver, versions and date."""
    card = torch.cuda.get_device_properties(0)
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "card": card.name,
        "memory_gib": round(card.total_memory / 2**30, 1),
        "multiprocessors": card.multi_processor_count,
        "driver": _driver(),
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        "system": platform.platform(),
        "versions": {name: _version(name) for name in ("torch", "triton", "numpy", "flashinfer-python")},
    }


def table(record: Record) -> str:
    """The record of a run as text."""
    about, checks, figures = record["environment"], record["checks"], record["figures"]
    workloads = {name: figures[name] for name in attention_cuda.WORKLOADS if "share_of_copy" in figures.get(name, {})}
    passed = sum(check.get("passed", False) for check in checks.values())
    lines = [
        f"{about['card']}, {about['date']}, driver {about['driver']}, CUDA {about['cuda']}, "
        + ", ".join(f"{name} {number}" for name, number in about["versions"].items() if number),
        f"{passed} of {len(checks)} checks passed, {record['seconds']:.0f} s in all",
        "",
    ]
    lines += [_check_line(name, check) for name, check in checks.items()]
    if workloads:
        lines += ["", attention_cuda.table(workloads)]
    for name, figure in figures.items():
        if name not in workloads:
            lines += ["", f"{name}: {_figure_text(name, figure)}"]
    return "\n".join(lines)


def run(args: argparse.Namespace) -> int:
    """Check, measure, write and print. Returns the exit code: 1 for anything wrong, 2 without CUDA."""
    reason = attention_cuda.no_cuda()
    if reason:
        print(f"gpu-check: {reason}; nothing was checked")
        return 2
    start = time.perf_counter()
    record: Record = {"environment": environment()}
    record["checks"] = check_everything()
    record["figures"] = measure_everything(args.rounds, args.tune)
    record["seconds"] = time.perf_counter() - start
    record["passed"] = is_right(record)
    text = table(record)
    args.out.mkdir(parents=True, exist_ok=True)
    name = re.sub("[^A-Za-z0-9]+", "-", f"{record['environment']['date'][:19]} {record['environment']['card']}")
    (args.out / f"{name}.json").write_text(json.dumps(record, indent=2) + "\n")
    (args.out / f"{name}.txt").write_text(text + "\n")
    print(f"{text}\n\nwritten to {args.out / name}.json and .txt")
    return 0 if record["passed"] else 1


def is_right(record: Record) -> bool:
    """Whether every check passed and every workload was measured and computed rightly; other libraries may fail."""
    workloads = [record["figures"].get(name, {}) for name in attention_cuda.WORKLOADS]
    return all(check.get("passed", False) for check in record["checks"].values()) and all(
        workload.get("relative_error", torch.inf) <= attention_cuda.MAX_ERROR for workload in workloads
    )


def _attempt(part: Callable[[], Record]) -> Record:
    try:
        return part()
    except Exception:  # noqa: BLE001  (whatever a part raises is what is to be recorded of it)
        return {"raised": traceback.format_exc()}


def _empty_pools(case: Case, num_blocks: int, device: str) -> tuple[Tensor, Tensor]:
    """Keys and values full of NaN, [num_blocks, block_size, num_kv_heads, head_dim], strided as the layout says."""
    size, kv_heads, dim = case.block_size, case.num_kv_heads, case.head_dim

    def full(*shape: int) -> Tensor:
        return torch.full(shape, torch.nan, dtype=case.dtype, device=device)

    if case.layout == "interleaved":
        both = full(num_blocks, 2, size, kv_heads, dim)
        return both[:, 0], both[:, 1]
    if case.layout == "heads first":
        return full(num_blocks, kv_heads, size, dim).transpose(1, 2), full(num_blocks, kv_heads, size, dim).transpose(
            1, 2
        )
    return full(num_blocks, size, kv_heads, dim), full(num_blocks, size, kv_heads, dim)


def _error(output: Tensor, exact: Tensor) -> float:
    if not bool(output.isfinite().all()):
        return torch.inf
    if not bool(exact.any()):
        return torch.inf if bool(output.any()) else 0.0
    return float((output.double() - exact).norm() / exact.norm())


def _plan_step(chooser: random.Random, num_blocks: int) -> dict[str, list[tuple[int, int]]]:
    """Pairs of one step: sources of swaps out are targets of copies, sources of swaps in are targets of swaps out."""
    gpu, cpu = chooser.sample(range(num_blocks), num_blocks // 2), chooser.sample(range(num_blocks), num_blocks // 4)
    quarter = num_blocks // 8
    arriving, leaving, copied = gpu[:quarter], gpu[quarter : 2 * quarter], gpu[2 * quarter : 3 * quarter]
    return {
        "in": list(zip(cpu[:quarter], arriving, strict=True)),
        "out": list(zip(leaving, cpu[:quarter], strict=True)),
        "copy": list(zip([*copied[: quarter // 2], *arriving[: quarter - quarter // 2]], leaving, strict=True)),
    }


def _attend_in_step(
    cache: KVCache, mirror: KVCache, generator: torch.Generator, layer: int, attention: Attention
) -> float:
    """The error of attention over all blocks of a cache, launched at once, beside its mirror's tokens."""
    num_blocks, size, kv_heads, dim = mirror.key_cache(layer).shape
    tables = torch.arange(num_blocks, dtype=torch.int32).view(8, -1)
    lens = torch.full((8,), tables.shape[1] * size, dtype=torch.int32)
    query = torch.randn(8, 2 * kv_heads, dim, generator=generator).to(mirror.gpu.dtype)
    device = cache.gpu.device
    batch = Batch(
        query.to(device), cache.key_cache(layer), cache.value_cache(layer), tables.to(device), lens.to(device)
    )
    output = attention(torch.full_like(batch.query, torch.nan), batch, None).cpu()
    exact = Batch(query, mirror.key_cache(layer), mirror.value_cache(layer), tables, lens)
    return max(_error(output[seq], dense(exact, seq)) for seq in range(len(output)))


def _check_line(name: str, check: Record) -> str:
    if "raised" in check:
        return f"RAISED  {name}: {check['raised'].strip().splitlines()[-1]}"
    details = ", ".join(f"{key} {value:.1e}" for key, value in check.items() if key in ("error", "tolerance"))
    return f"{'ok' if check['passed'] else 'WRONG':<8}{name}{': ' * bool(details)}{details}"


def _figure_text(name: str, figure: Record) -> str:
    if "raised" in figure:
        return f"raised {figure['raised'].strip().splitlines()[-1]}"
    if isinstance(figure.get("skipped"), str):
        return f"skipped, {figure['skipped']}"
    if name == "configurations":
        return "share of the copy's bandwidth" + "".join(
            f"\n{share:>8.1%}  {label}" for label, share in figure["share_of_copy"].items()
        )
    return f"{figure[f'{name}_ms']:.3f} ms, kernel {figure['kernel_ms']:.3f} ms, error {figure['relative_error']:.1e}"


def _driver() -> str | None:
    try:
        command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.split()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        return None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None

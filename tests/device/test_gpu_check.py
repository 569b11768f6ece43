"""The check that runs on a GPU, run on small cases here: right code passes, and each planted fault is found."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton", reason="triton is not installed: it is there for Linux on x86-64 only")

from refimpl.bench import attention_cuda, gpu_check
from refimpl.bench.gpu_check import (
    Case,
    check_case,
    check_large_scores,
    check_model,
    check_physical_order,
    check_swaps,
    run_kernel,
)
from refimpl.cli import main
from refimpl.device.kv_cache import KVCache

ROOT = Path(__file__).parents[2]
SMALL = Case(torch.float32, 8, 4, (0, 1, 5, 30), 4, 2)
without_cuda = pytest.mark.skipif(torch.cuda.is_available(), reason="there is CUDA: this is about machines without")


@pytest.mark.parametrize("layout", gpu_check.LAYOUTS)
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"num_splits": 3, "contexts": (300, 0), "table_dtype": torch.int64},
        {"head_dim": 80, "block_size": 1, "spare_columns": 200},
    ],
)
def test_the_kernel_passes(layout, changes):
    """D01, D02, D04, D10, D23."""
    result = check_case(replace(SMALL, layout=layout, **changes), "cpu")
    assert result["passed"], result


def wrong_heads(output, batch, num_splits):
    flipped = {name: getattr(batch, name).flip(2) for name in ("key_cache", "value_cache")}
    return run_kernel(output, replace(batch, **flipped), num_splits)


def last_token_left_out(output, batch, num_splits):
    return run_kernel(output, replace(batch, context_lens=(batch.context_lens - 1).clamp(min=0)), num_splits)


def one_slot_too_many(output, batch, num_splits):
    lens = batch.context_lens
    return run_kernel(output, replace(batch, context_lens=lens + (lens % 4 > 0).int()), num_splits)


def blocks_in_physical_order(output, batch, num_splits):
    used = batch.block_tables >= 0
    tables = torch.where(used, batch.block_tables, 10_000).sort(dim=1).values
    return run_kernel(output, replace(batch, block_tables=torch.where(used, tables, -1)), num_splits)


def wrong_scale(output, batch, num_splits):
    return run_kernel(output, replace(batch, query=batch.query * 1.01), num_splits)


def last_element_not_written(output, batch, num_splits):
    run_kernel(output, batch, num_splits)[..., -1] = torch.nan
    return output


def leftovers_for_no_tokens(output, batch, num_splits):
    run_kernel(output, batch, num_splits)[batch.context_lens == 0] = 1e-9
    return output


def strides_of_a_contiguous_cache(output, batch, num_splits):
    shape = batch.key_cache.shape
    strides = torch.empty(shape, device="meta").stride()
    pools = {name: getattr(batch, name).as_strided(shape, strides) for name in ("key_cache", "value_cache")}
    return run_kernel(output, replace(batch, **pools), num_splits)


@pytest.mark.parametrize(
    "fault",
    [
        wrong_heads,
        last_token_left_out,
        one_slot_too_many,
        blocks_in_physical_order,
        wrong_scale,
        last_element_not_written,
        leftovers_for_no_tokens,
        strides_of_a_contiguous_cache,
    ],
)
def test_a_planted_fault_is_found(fault):
    case = replace(SMALL, layout="heads first") if fault is strides_of_a_contiguous_cache else SMALL
    result = check_case(case, "cpu", fault)
    assert result["error"] > 100 * result["tolerance"]
    assert not result["passed"]


def test_a_result_that_depends_on_block_numbers_is_found():
    """D13."""

    def by_block_number(output, batch, num_splits):
        return run_kernel(output, batch, num_splits) + 1e-7 * batch.block_tables[:, :1, None]

    assert check_physical_order(SMALL, "cpu")["passed"]
    assert not check_physical_order(SMALL, "cpu", by_block_number)["passed"]


def test_scores_that_overflow_are_found():
    """D17."""

    def in_float16(output, batch, num_splits):
        scores = (batch.query[0].half() * batch.key_cache[batch.block_tables[0, 0].long(), :2, 0].half()).sum(-1)
        return torch.where(scores.isinf().all(), torch.nan, run_kernel(output, batch, num_splits))

    assert check_large_scores("cpu", torch.float32)["passed"]
    assert not check_large_scores("cpu", torch.float32, in_float16)["passed"]


class CopiesFirst(KVCache):
    """Does a step's copies before its swaps out."""

    leaving = ()

    def swap_out(self, pairs):
        self.leaving = pairs

    def copy(self, pairs):
        super().copy(pairs)
        super().swap_out(self.leaving)


class OutBeforeIn(KVCache):
    """Does a step's swaps out before its swaps in."""

    arriving = ()

    def swap_in(self, pairs):
        self.arriving = pairs

    def swap_out(self, pairs):
        super().swap_out(pairs)
        super().swap_in(self.arriving)


class ArrivesLate(KVCache):
    """What is swapped in arrives a step later than it is used."""

    arriving = ()

    def swap_in(self, pairs):
        super().swap_in(self.arriving)
        self.arriving = pairs


class MixesKeysAndValues(KVCache):
    """Swaps in keys as values."""

    def swap_in(self, pairs):
        super().swap_in(pairs)
        blocks = [block for _, block in pairs]
        self.gpu[:, :, blocks] = self.gpu[:, :, blocks].flip(1)


class CopiesNothing(KVCache):
    """Forgets copy on write."""

    def copy(self, pairs):
        """Do nothing."""


def dense_attention(output, batch, num_splits):
    """Stands in for the kernel, which is not what is checked here."""
    return torch.stack([gpu_check.dense(batch, seq) for seq in range(len(output))]).to(output.dtype)


def test_swaps_are_in_order():
    result = check_swaps("cpu", dtype=torch.float32, num_blocks=32, rounds=2)
    assert result["passed"], result


@pytest.mark.parametrize("cache", [CopiesFirst, OutBeforeIn, ArrivesLate, MixesKeysAndValues, CopiesNothing])
def test_a_planted_fault_of_the_cache_is_found(cache):
    options = {"dtype": torch.float32, "num_blocks": 32, "rounds": 3, "attention": dense_attention}
    assert check_swaps("cpu", KVCache, **options)["passed"]
    result = check_swaps("cpu", cache, **options)
    assert not result["passed"]
    assert result["wrong_steps"] or not all(result["same_pools"])


def test_the_cases_are_those_that_the_issue_asks_for():
    cases = list(gpu_check.cases())
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        for head_dim in (64, 80, 128):
            for size in (1, 16, 32):
                asked = {0, 1, size - 1, size, size + 1, 1000, 32768}
                found = [
                    case for case in cases if (case.dtype, case.head_dim, case.block_size) == (dtype, head_dim, size)
                ]
                assert any(asked <= set(case.contexts) for case in found)
    assert {case.layout for case in cases} == set(gpu_check.LAYOUTS)
    assert len({case.name for case in cases}) == len(cases)
    far = max(cases, key=lambda case: case.spare_blocks)
    assert far.spare_blocks * far.block_size * far.num_kv_heads * far.head_dim >= 2**31  # D08


@without_cuda
def test_without_cuda_it_says_so_and_writes_nothing(tmp_path, capsys):
    assert main(["bench", "gpu-check", "--out", str(tmp_path / "runs")]) == 2
    (line,) = capsys.readouterr().out.splitlines()
    assert "finds no CUDA device; nothing was checked" in line
    assert not (tmp_path / "runs").exists()


@pytest.fixture
def recorded(monkeypatch, tmp_path):
    """Runs gpu-check with stand-ins for the GPU's parts; what it returned and wrote."""
    workload = {
        "kernel_ms": 0.3, "kernel_eager_ms": 0.3, "kernel_gb_s": 3600.0, "copy_gb_s": 4000.0, "share_of_copy": 0.9,
        "relative_error": 1e-3,
    }  # fmt: skip

    def run(checks, **changes):
        monkeypatch.setattr(attention_cuda, "no_cuda", lambda: None)
        about = {"date": "2026-01-02T03:04:05+00:00", "card": "A Card", "driver": "1", "cuda": "13", "versions": {}}
        monkeypatch.setattr(gpu_check, "environment", lambda: about)
        monkeypatch.setattr(gpu_check, "check_everything", lambda: checks)
        monkeypatch.setattr(attention_cuda, "measure", lambda contexts, rounds: workload | changes)
        for name in ("measure_flashinfer", "measure_flex"):
            monkeypatch.setattr(attention_cuda, name, lambda rounds: {"skipped": "not there"})
        code = main(["bench", "gpu-check", "--out", str(tmp_path)])
        (record,) = tmp_path.glob("*.json")
        (text,) = tmp_path.glob("*.txt")
        return code, json.loads(record.read_text()), text.read_text()

    return run


RIGHT = {"error": 1e-7, "tolerance": 1e-5, "passed": True}


def test_a_run_without_faults_ends_well(recorded):
    code, record, text = recorded({"a": RIGHT})
    assert (code, record["passed"]) == (0, True)
    assert "1 of 1 checks passed" in text
    assert "64 x 4096" in text
    assert "90.0%" in text


@pytest.mark.parametrize("wrong", [{"error": 1.0, "tolerance": 1e-5, "passed": False}, {"raised": "Boom: no"}])
def test_one_wrong_check_fails_the_run_and_is_written_down(recorded, wrong):
    code, record, text = recorded({"a": RIGHT, "b": wrong})
    assert (code, record["passed"]) == (1, False)
    assert record["checks"]["b"] == wrong
    assert "1 of 2 checks passed" in text
    assert "WRONG" in text or "RAISED  b: Boom: no" in text


def test_a_wrong_workload_fails_the_run(recorded):
    code, record, _ = recorded({"a": RIGHT}, relative_error=float("nan"))
    assert (code, record["passed"]) == (1, False)


def test_a_model_that_computes_otherwise_on_the_device_is_found(monkeypatch):
    assert check_model("cpu")["passed"]
    caches = []

    class Lossy(KVCache):
        def __init__(self, *args):
            super().__init__(*args)
            caches.append(self)

        def write(self, layer, key, value, slot_mapping):
            super().write(layer, key, value * (1.001 if self is caches[-1] else 1), slot_mapping)

    monkeypatch.setattr(gpu_check, "KVCache", Lossy)
    result = check_model("cpu")
    assert not result["passed"]
    assert result["relative_error"] > gpu_check.MODEL_TOLERANCE


def test_a_part_that_raises_is_recorded_and_the_rest_goes_on(monkeypatch):
    def boom(*arguments):
        raise RuntimeError("Boom")

    monkeypatch.setattr(gpu_check, "check_case", boom)
    monkeypatch.setattr(gpu_check, "check_no_waiting", boom)
    for name in ("check_physical_order", "check_large_scores", "check_swaps", "check_model"):
        monkeypatch.setattr(gpu_check, name, lambda *arguments: RIGHT)
    checks = gpu_check.check_everything("cpu")
    assert "RuntimeError: Boom" in checks["launched without waiting"]["raised"]
    assert checks["swap in, swap out, copy, compute"] == RIGHT


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make on this machine")
@pytest.mark.parametrize("finds_gpu", [True, False])
def test_make_gpu_check_takes_the_python_that_finds_a_gpu_and_builds_nothing(tmp_path, finds_gpu):
    for name in ("Makefile", "pyproject.toml", "requirements.txt"):
        shutil.copy(ROOT / name, tmp_path / name)
    python = tmp_path / "fake-python"
    python.write_text(f'#!/bin/sh\ncase "$1" in -c) exit {int(not finds_gpu)};; *) echo "$@";; esac\n')
    python.chmod(0o755)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
    command = ["make", "-C", tmp_path, "gpu-check", f"PYTHON={python}", "OUT=here", "TUNE=1"]
    result = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert not (tmp_path / ".venv").exists()
    if finds_gpu:
        assert result.returncode == 0
        assert "-m refimpl bench gpu-check --out here --tune" in result.stdout
    else:
        assert result.returncode == 2
        assert "finds a CUDA device; nothing was checked" in result.stdout


def test_the_help_of_bench_needs_no_torch():
    script = (
        "import sys; sys.modules['torch'] = None\n"
        "from refimpl.cli import main\n"
        "print(main(['bench', 'gpu-check']), main(['bench', 'attention']))"
    )
    result = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert result.stdout == "2 2\n", result.stderr
    assert result.stderr.count("pip install refimpl[device]") == 2

"""The decode kernel, interpreted where there is no CUDA: right in every layout, and harmless to import anywhere.

Green here says nothing about a GPU, on which `make gpu-check` runs; that the kernel compiles for one is tested.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import paged
import pytest
import torch

pytest.importorskip("triton", reason="triton is not installed: it is there for Linux on x86-64 only")

from refimpl.device import triton_kernels
from refimpl.device.triton_kernels import KernelConfig, decode_into, paged_attention_triton, why_unavailable

ROOT = Path(__file__).parents[2]
NAN = float("nan")
SMALL_TILES = KernelConfig(tile_bytes=1)  # 16 tokens, so that short contexts have many tiles and many splits


class Batch(paged.Batch):
    """Runs the kernel itself, with splits and tiles of our choice."""

    def run(self, num_splits=None, config=SMALL_TILES, **changes):
        """The kernel's answer, written over NaN so that what it does not write is seen."""
        tensors = {"key_cache": self.keys, "value_cache": self.values, "block_tables": self.tables} | changes
        output = torch.full_like(self.query, NAN)
        scale = self.query.shape[-1] ** -0.5
        decode_into(
            output, self.query, context_lens=self.lens, scale=scale, num_splits=num_splits, config=config, **tensors
        )
        return output


@pytest.mark.parametrize("num_splits", [None, 1, 2, 5])
@pytest.mark.parametrize("block_size", [1, 4, 16])
def test_contexts_of_all_lengths_in_one_call(block_size, num_splits):
    """D01, D02, D15, D23: NaN in every unused slot, no tokens at all, one token, less than a block, empty splits."""
    batch = Batch([0, 1, 3, block_size + 1, 15, 16, 17, 70], block_size=block_size)
    torch.testing.assert_close(batch.run(num_splits), batch.expected, atol=1e-6, rtol=1e-5)


def test_the_entry_point_runs_the_default_configuration():
    batch = Batch([0, 5, 300], dim=64)
    output = paged_attention_triton(
        batch.query, batch.keys, batch.values, batch.tables, batch.lens, scale=64**-0.5, num_splits=3
    )
    torch.testing.assert_close(output, batch.expected, atol=1e-6, rtol=1e-5)


def test_no_sequences_at_all():
    batch = Batch([5])
    nothing = torch.zeros(0, 1, dtype=torch.int64), torch.zeros(0, dtype=torch.int64)
    output = paged_attention_triton(batch.query[:0], batch.keys, batch.values, *nothing, scale=1.0)
    assert output.shape == (0, 4, 8)


@pytest.mark.parametrize("num_splits", [1, 3])
def test_length_zero_is_exactly_zero_whatever_the_query_holds(num_splits):
    """D02: beside a row that has tokens, and alone; the output buffer held NaN."""
    batch = Batch([0, 40])
    batch.query[0] = NAN
    output = batch.run(num_splits)
    assert torch.equal(output[0], torch.zeros(4, 8))
    torch.testing.assert_close(output[1], batch.expected[1], atol=1e-6, rtol=1e-5)
    alone = Batch([0])
    assert torch.equal(alone.run(num_splits), torch.zeros(1, 4, 8))


@pytest.mark.parametrize("dim", [1, 80, 96])
def test_any_head_dim(dim):
    """D04: head sizes that are no power of two; what lies behind a head's last element is another head's, or NaN."""
    batch = Batch([9, 33], dim=dim)
    torch.testing.assert_close(batch.run(2), batch.expected, atol=1e-5, rtol=1e-5)
    wide = [torch.full((*pool.shape[:3], 128), NAN) for pool in (batch.keys, batch.values)]
    for pool, narrow in zip(wide, (batch.keys, batch.values), strict=True):
        pool[..., :dim] = narrow
    padded = batch.run(2, key_cache=wide[0][..., :dim], value_cache=wide[1][..., :dim])
    torch.testing.assert_close(padded, batch.expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("heads", "kv_heads"), [(1, 1), (9, 3), (6, 6), (20, 1)])
def test_heads_read_the_kv_head_of_their_group(heads, kv_heads):
    """D05, D06: groups of 1, 3 and 20 heads, padded to the 16 or 32 rows that tl.dot can multiply."""
    batch = Batch([21, 5], heads=heads, kv_heads=kv_heads)
    torch.testing.assert_close(batch.run(2), batch.expected, atol=1e-6, rtol=1e-5)


def test_neighbouring_heads_share_a_kv_head():
    """D06: heads 0 and 1 read KV head 0, heads 2 and 3 read KV head 1."""
    keys = torch.zeros(1, 1, 2, 4)
    values = torch.stack([torch.ones(4), torch.full((4,), 2.0)])[None, None]
    output = paged_attention_triton(
        torch.ones(1, 4, 4), keys, values, torch.tensor([[0]]), torch.tensor([1]), scale=0.5
    )
    assert output[0, :, 0].tolist() == [1, 1, 2, 2]


@pytest.mark.skipif(sys.platform != "linux", reason="memory that is reserved and never filled is asked for as on Linux")
@pytest.mark.parametrize("pool", ["key_cache", "value_cache"])
@pytest.mark.parametrize(
    ("shape", "strides"),
    [
        ((2067, 4, 2, 8), (1_039_680, 16, 8, 1)),  # block 2066 starts at element 2,147,978,880
        ((8, 4, 2, 8), (16, 715_827_884, 8, 1)),
        ((8, 4, 4, 8), (32, 8, 715_827_884, 1)),
        ((8, 4, 2, 8), (8, 2, 1, 306_783_380)),
    ],
)
def test_offsets_need_64_bits(shape, strides, pool):
    """D08: the last block, slot, head or element of a pool starts behind element 2**31."""
    assert max((size - 1) * stride for size, stride in zip(shape, strides, strict=True)) > 2**31
    batch = Batch([4], heads=4, kv_heads=shape[2])
    far = paged.far_pool(shape, strides)
    near = {"key_cache": batch.keys, "value_cache": batch.values}
    block = int(batch.tables[0, 0])
    far[-1] = near[pool][block]
    other = next(name for name in near if name != pool)
    changes = {pool: far, other: near[other][block].expand(shape), "block_tables": torch.tensor([[shape[0] - 1]]).int()}
    torch.testing.assert_close(batch.run(**changes), batch.expected, atol=1e-6, rtol=1e-5)


def test_strides_are_read_from_the_tensors():
    """D10: keys and values interleaved by block, KV heads outermost, head elements apart, every argument strided."""
    batch = Batch([11, 30])
    both = torch.stack([batch.keys, batch.values], dim=1)
    torch.testing.assert_close(batch.run(2, key_cache=both[:, 0], value_cache=both[:, 1]), batch.expected)
    for order in [(2, 0, 1, 3), (1, 0, 2, 3), (3, 2, 1, 0)]:
        back = [order.index(axis) for axis in range(4)]
        keys = batch.keys.permute(order).contiguous().permute(back)
        assert not keys.is_contiguous()
        torch.testing.assert_close(batch.run(2, key_cache=keys), batch.expected)
    batch.query, batch.lens = batch.query.repeat(1, 1, 2)[:, :, :8], batch.lens.repeat_interleave(2)[::2]
    tables = batch.tables.t().contiguous().t()
    torch.testing.assert_close(batch.run(2, block_tables=tables), batch.expected)


def test_physical_order_changes_nothing():
    """D13: the same tokens in other blocks give the same bits, in ten random orders."""
    batch = Batch([11], block_size=4)
    expected = batch.run(2)
    for seed in range(10):
        order = torch.randperm(len(batch.keys), generator=torch.Generator().manual_seed(seed))
        tables = torch.argsort(order)[batch.tables.long()]
        output = batch.run(2, key_cache=batch.keys[order], value_cache=batch.values[order], block_tables=tables)
        assert torch.equal(output, expected)


@pytest.mark.filterwarnings("ignore:invalid value", "ignore:All-NaN")  # of numpy's, for rows that are padding
@pytest.mark.parametrize(("hidden_blocks", "num_splits"), [(1, 1), (1, 2), (16, 17)])
def test_a_split_in_which_every_score_is_minus_infinity(hidden_blocks, num_splits):
    """D23: it weighs nothing beside a split with finite scores, be it a tile, a split or all that is merged first."""
    batch = Batch([16 * (hidden_blocks + 1)], kv_heads=1, heads=1, block_size=16)
    batch.query[:] = 1.0
    last = batch.tables[:, -1:].repeat(1, hidden_blocks + 1)  # the same tokens over and over weigh the same
    before = batch.run(num_splits, block_tables=last)
    batch.keys[batch.tables[0, :-1].long(), :, :, 0] = -torch.inf
    torch.testing.assert_close(batch.run(num_splits), before)


def test_more_splits_than_the_merge_reads_at_a_time():
    """D23: 40 splits of 16 tokens are merged in three steps."""
    batch = Batch([640, 17], heads=1, kv_heads=1)
    torch.testing.assert_close(batch.run(40), batch.expected, atol=1e-6, rtol=1e-5)


def test_scores_are_scaled_once():
    batch = Batch([6])
    batch.query *= 3
    output = batch.run()
    other = batch.query / 3
    decode_into(
        output_of_other := torch.empty_like(other),
        other,
        batch.keys,
        batch.values,
        batch.tables,
        batch.lens,
        scale=3 * 8**-0.5,
    )
    torch.testing.assert_close(output, output_of_other)


def test_splits_fill_whole_waves():
    """512 programs on 396 places: five splits leave 8 % of the last wave idle, four would leave 14 %."""
    assert triton_kernels._fill_waves(512, 396, fewest=4, most=32) == 5
    assert triton_kernels._fill_waves(8, 396, fewest=1, most=32) == 32  # never full: as many as there are
    assert triton_kernels._fill_waves(396, 396, fewest=1, most=1) == 1


def test_one_sequence_is_spread_wide_and_a_long_table_is_cut():
    config = KernelConfig()
    cpu = torch.device("cpu")
    assert triton_kernels._split_len(131072, 4, 64, None, config, cpu) <= 1024
    assert triton_kernels._split_len(1000, 4, 64, 3, config, cpu) == 384
    assert triton_kernels._split_len(0, 4, 64, None, config, cpu) == 64


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is CUDA, so nothing is interpreted")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_interpreter_is_refused_what_it_computes_wrongly(dtype):
    """D18: bfloat16 in the interpreter gives numbers of the order of 1e38."""
    assert "interpreter is right in float32 only" in why_unavailable(torch.zeros(1, 1, 8, dtype=dtype))
    assert why_unavailable(torch.zeros(1, 1, 8)) is None


def test_other_dtypes_are_refused():
    assert "the query is float64" in why_unavailable(torch.zeros(1, 1, 8, dtype=torch.float64))


def python(script, **variables):
    """What a fresh interpreter prints; it must end well."""
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    command = [sys.executable, "-c", script]
    result = subprocess.run(command, cwd=ROOT, env=environment | variables, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout


USE_THE_KERNEL = """
import os
import torch
{before}
import refimpl, refimpl.device.attention
from refimpl.device.triton_kernels import paged_attention_triton, why_unavailable
print(os.environ.get("TRITON_INTERPRET"))
pools = torch.ones(2, 1, 4, 1, 8)
print(why_unavailable(pools[0]))
print(paged_attention_triton(torch.ones(1, 2, 8), *pools, torch.tensor([[0]]), torch.tensor([3]), scale=1.0).unique())
"""


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is CUDA, so nothing is interpreted")
@pytest.mark.parametrize(
    ("before", "variables"),
    [("", {}), ("import triton, triton.language", {}), ("import triton", {"TRITON_INTERPRET": "1"})],
)
def test_without_cuda_the_kernel_is_interpreted_whoever_imported_triton_first(before, variables):
    """D19: with and without the variable, which other users of triton find as it was."""
    printed = python(USE_THE_KERNEL.format(before=before), **variables)
    assert printed.splitlines() == [str(variables.get("TRITON_INTERPRET")), "None", "tensor([1.])"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is CUDA, so nothing is interpreted")
def test_a_kernel_that_is_compiled_refuses_a_cpu_tensor_with_a_hint():
    """D19: a hint in one line, not 'Pointer argument cannot be accessed' from a driver."""
    printed = python(
        "import torch\n"
        "torch.cuda.is_available = lambda: True\n"
        "from refimpl.device.triton_kernels import why_unavailable\n"
        "print(why_unavailable(torch.zeros(1, 1, 8)))"
    )
    assert "TRITON_INTERPRET=1" in printed
    assert len(printed.splitlines()) == 1


def test_without_triton_everything_else_imports():
    """D19."""
    printed = python(
        "import sys\n"
        "sys.modules['triton'] = None\n"
        "import refimpl, torch, refimpl.device.attention\n"
        "from refimpl.device.triton_kernels import why_unavailable\n"
        "print(why_unavailable(torch.zeros(1, 1, 8)))"
    )
    assert printed.startswith("triton is not installed")


COMPILE = """
import re, subprocess, sys, tempfile
from pathlib import Path
import torch, triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver


class Hopper:  # what Triton asks a driver before it compiles
    get_current_device = staticmethod(lambda: 0)
    get_current_stream = staticmethod(lambda device: 0)
    get_current_target = staticmethod(lambda: GPUTarget("cuda", 90, 32))


driver.set_active(Hopper())
torch.cuda.is_available = lambda: True
from refimpl.device import triton_kernels
torch.cuda.is_available = lambda: False
compiled, rows = {}, []


class Compile:
    def __init__(self, kernel):
        self.kernel = kernel

    def __getitem__(self, grid):
        def compile(*arguments, **options):
            compiled[self.kernel.fn.__name__] = self.kernel.warmup(*arguments, grid=grid, **options)
            rows.append(options.get("ROWS"))

        return compile


triton_kernels._decode_kernel = Compile(triton_kernels._decode_kernel)
triton_kernels._merge_kernel = Compile(triton_kernels._merge_kernel)
for dtype in (torch.float32, torch.bfloat16):
    pools = torch.zeros(2, 2, 16, 2, 128, dtype=dtype)
    tables, lens = torch.zeros(2, 8, dtype=torch.int32), torch.zeros(2, dtype=torch.int32)
    triton_kernels.paged_attention_triton(
        torch.zeros(2, 8, 128, dtype=dtype), *pools, tables, lens, scale=1.0, num_splits=2
    )
    for name, kernel in compiled.items():
        with tempfile.TemporaryDirectory() as folder:
            binary = Path(folder, "kernel.cubin")
            binary.write_bytes(kernel.asm["cubin"])
            tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
            usage, sass = (
                subprocess.run([tool, flag, binary], capture_output=True, text=True, check=True).stdout
                for flag in ("-res-usage", "-sass")
            )
        stack = re.search(r"STACK:([0-9]+)", usage).group(1)
        copies = len(re.findall(r"LDGSTS[.A-Z]*[.]128", sass))
        cores = "tensor-cores" if "HMMA" in sass else "-"
        print(dtype, name, "stack", stack, "async" if copies else "-", cores, kernel.metadata.shared)
print(rows[0])
"""


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is CUDA: gpu-check runs the compiled kernel itself")
@pytest.mark.skipif(version("triton") != "3.7.1", reason="the stand-in for a driver is made for triton 3.7.1")
def test_the_kernel_compiles_for_a_gpu_that_is_not_here(tmp_path):
    """D05: groups have 16 rows. Nothing is on the stack, keys and values come in asynchronous copies of 16 bytes a
    thread, and float32 is float32: no tensor core, which would compute it in tf32.
    """
    *lines, rows = python(COMPILE, TRITON_CACHE_DIR=str(tmp_path)).splitlines()
    assert len(lines) == 4
    assert rows == "16"
    for line in lines:
        dtype, name, _, stack, copies, cores, shared = line.split()
        assert stack == "0", line
        assert (copies == "async") == (name == "_decode_kernel"), line
        assert (cores == "tensor-cores") == (copies == "async" and dtype == "torch.bfloat16"), line
        assert int(shared) < 227 * 1024 // 2, line


def test_the_versions_that_were_tested_are_the_ones_that_run():
    """D21: the set in the lock is the set here; Triton's interpreter has broken with numpy's and triton's versions."""
    lock = (ROOT / "requirements.txt").read_text().splitlines()
    locked = dict(line.split(";")[0].split("==") for line in lock if "==" in line)
    found = {name: version(name).split("+")[0] for name in ("torch", "triton", "numpy")}
    print(found)
    assert found == {name: locked[name].strip() for name in found}

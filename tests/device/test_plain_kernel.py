"""The teaching kernel is right wherever it runs, and a wrong kernel ends in a sentence, never in a crash."""

from __future__ import annotations

import inspect
import linecache
import os
import subprocess
import sys

import paged
import pytest
import torch

pytest.importorskip("triton", reason="triton is not installed: it is there for Linux on x86-64 only")

import triton.language as tl
from triton.runtime import interpreter

from refimpl.device import plain_kernel
from refimpl.device.plain_kernel import decode_kernel, jit, run_kernel


def batch_of(lengths, **changes):
    return paged.Batch(lengths, **{"table_dtype": torch.int64, **changes})


@pytest.mark.parametrize("layout", ["tokens first", "heads first", "interleaved", "gaps"])
@pytest.mark.parametrize("block_size", [1, 4])
def test_it_is_right_in_any_layout(block_size, layout):
    batch = batch_of([0, 1, block_size, block_size + 1, 11], block_size=block_size, layout=layout)
    for kernel in (decode_kernel, jit(decode_kernel)):
        torch.testing.assert_close(run_kernel(kernel, *batch.arguments()), batch.expected, atol=1e-6, rtol=1e-5)


def test_groups_and_a_scale_of_ones_own():
    batch = batch_of([9], heads=6, kv_heads=2, dim=4)
    torch.testing.assert_close(run_kernel(decode_kernel, *batch.arguments(), scale=0.5), batch.expected)


def scores_of(q, keys):
    return tl.sum(q[None, :] * keys, 1)


def changed(old, new):
    """The kernel with one piece of its source exchanged, defined as a notebook's cell defines it."""
    source = inspect.getsource(decode_kernel)
    assert old in source
    source, name = source.replace(old, new), f"<cell {len(linecache.cache)}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    names = {"tl": tl, "jit": jit}
    exec(compile(source, name, "exec"), names)
    return names["decode_kernel"]


LEAVES = {
    "block * cache_strides[0]": "block * cache_strides[0] * cache_strides[1]",
    "first // BLOCK_SIZE * table_strides[1]": "first * table_strides[1]",
    "head // GROUP": "head",
    "offsets * cache": "(offsets - context_len) * cache",
    "tl.load(key_cache + elements": "tl.load(key_cache + elements * 2**40",
    "tl.store(output + seq * query_strides[0]": "tl.store(output + 2**50 + seq",
}


@pytest.mark.parametrize("old", LEAVES)
def test_a_kernel_that_leaves_its_tensors_is_stopped_and_told(old):
    batch = batch_of([9, 12])
    before = [tensor.clone() for tensor in batch.arguments()]
    with pytest.raises(
        IndexError, match=r"the kernel (reads|writes) element -?\d+ of \w+, whose elements are 0 to \d+"
    ):
        run_kernel(changed(old, LEAVES[old]), *batch.arguments())
    for tensor, was in zip(batch.arguments(), before, strict=True):
        assert torch.equal(tensor.nan_to_num(), was.nan_to_num())


def test_an_address_that_is_no_tensors_is_told_too():
    batch = batch_of([9])
    kernel = changed("tl.load(key_cache + elements", "tl.load((elements * 0 + 8).to(tl.pointer_type(tl.float32))")
    with pytest.raises(IndexError, match="the kernel reads at an address that is no tensor's"):
        run_kernel(kernel, *batch.arguments())


@pytest.mark.parametrize("operation", ["tl.atomic_add(output + dims, q)", "tl.atomic_cas(output + dims, q, q)"])
def test_an_atomic_operation_ends_in_a_sentence(operation):
    kernel = changed("    largest = float", f"    {operation}\n    largest = float")
    with pytest.raises(TypeError, match="a decode kernel needs no atomic operation"):
        run_kernel(kernel, *batch_of([9]).arguments())


def test_a_lane_that_a_mask_shuts_holds_anything():
    batch = batch_of([9])
    masked = "tl.load(value_cache + elements, mask=is_token[:, None]"
    kernel = changed(f"{masked}, other=0.0)", f"{masked})")
    assert run_kernel(kernel, *batch.arguments()).isnan().all()


def test_what_a_kernel_raises_is_told_at_its_own_line():
    with pytest.raises(NotImplementedError) as caught:
        run_kernel(
            changed("largest = float", "raise NotImplementedError()\n    largest = float"), *batch_of([3]).arguments()
        )
    assert caught.traceback[-1].name == "decode_kernel"


def test_functions_of_tritons_library_as_functions_and_methods():
    batch = batch_of([9])
    kernel = changed("tl.max(scores, 0)", "scores.max(0)")
    torch.testing.assert_close(run_kernel(kernel, *batch.arguments()), batch.expected)
    kernel = changed("tl.full([HEAD_DIM], 0.0, tl.float32)", "tl.zeros([HEAD_DIM], tl.float32) + tl.cdiv(0, 4)")
    torch.testing.assert_close(run_kernel(kernel, *batch.arguments()), batch.expected)


def test_a_kernel_may_call_functions_of_its_notebook():
    batch = batch_of([9])
    for helper in (scores_of, jit(scores_of)):
        kernel = changed("tl.sum(q[None, :] * keys, 1)", "helper(q, keys)")
        kernel.__globals__["helper"] = helper
        before = set(kernel.__globals__)
        torch.testing.assert_close(run_kernel(kernel, *batch.arguments()), batch.expected)
        assert set(kernel.__globals__) == before


def test_triton_is_as_it_was_afterwards():
    def state():
        places = (tl, tl.core, tl.standard, tl.math, tl.tensor, interpreter, interpreter.interpreter_builder)
        return [{name: id(member) for name, member in vars(place).items() if "grid" not in name} for place in places]

    run_kernel(decode_kernel, *batch_of([3]).arguments())  # whatever is loaded once is loaded
    before = state()
    run_kernel(decode_kernel, *batch_of([9]).arguments())
    with pytest.raises(IndexError):
        run_kernel(changed("head // GROUP", "head"), *batch_of([9]).arguments())
    assert state() == before


def test_tensors_that_no_kernel_takes():
    batch = batch_of([9], dim=6)
    with pytest.raises(ValueError, match="head_dim is 6, and a Triton kernel's ranges are powers of two"):
        run_kernel(decode_kernel, *batch.arguments())
    batch = batch_of([9], layout="keys and values unlike")
    with pytest.raises(ValueError, match="make them alike"):
        run_kernel(decode_kernel, *batch.arguments())


def test_a_demonstration_says_where_it_ran_and_what_came_of_it():
    where = "On the CPU, in Triton's interpreter: 3 sequences of 17, 8, 1 tokens in float32."
    if torch.cuda.is_available():
        where = f"On {torch.cuda.get_device_name()}, compiled: 4 sequences of 1000, 17, 400, 1 tokens in float32."
    for kernel in (None, decode_kernel):
        assert plain_kernel.demonstrate(kernel) == f"{where} It agrees with the torch version."
    unscaled = changed("* keys, 1) * scale", "* keys, 1)")
    assert plain_kernel.demonstrate(unscaled) == f"{where} It differs from the torch version."
    stub = changed("largest = float", "raise NotImplementedError()\n    largest = float")
    assert plain_kernel.demonstrate(stub).endswith("The kernel raised NotImplementedError.")


def python(code, **environment):
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, **environment}
    ).stdout.strip()


def test_without_triton_a_kernel_can_be_written_and_not_run():
    """H1: what was not run says so."""
    printed = python(
        "import sys; sys.modules['triton'] = None\n"
        "import torch\n"
        "from refimpl.device import plain_kernel\n"
        "assert plain_kernel.jit(plain_kernel.decode_kernel) is plain_kernel.decode_kernel\n"
        "print(plain_kernel.where_kernels_run())\n"
        "print(plain_kernel.demonstrate())\n"
        "try: plain_kernel.run_kernel(plain_kernel.decode_kernel, *[torch.zeros(1)] * 5)\n"
        "except RuntimeError as error: print(error)"
    )
    assert printed.splitlines() == ["nowhere: Triton is not installed", *[plain_kernel.NOT_INSTALLED] * 2]


COMPILE = """
import torch, triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver


class Hopper:  # what Triton asks a driver before it compiles
    get_current_device = staticmethod(lambda: 0)
    get_current_stream = staticmethod(lambda device: 0)
    get_current_target = staticmethod(lambda: GPUTarget("cuda", 90, 32))


from refimpl.device.plain_kernel import decode_kernel, jit, run_kernel

tables, lens = torch.zeros(2, 8, dtype=torch.int64), torch.ones(2, dtype=torch.int64)
pools, query = torch.zeros(2, 16, 2, 64), torch.zeros(2, 4, 64)
run_kernel(decode_kernel, query, pools, pools, tables, lens)  # interpreted before, as a check does
driver.set_active(Hopper())
strides = query.stride(), pools.stride(), tables.stride()
compiled = jit(decode_kernel).warmup(
    query, query, pools, pools, tables, lens, 1.0, *strides, GROUP=2, HEAD_DIM=64, BLOCK_SIZE=16, grid=(2, 4)
)
print(len(compiled.asm["cubin"]) > 0)
"""


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is CUDA: the check of the chapter runs it compiled")
def test_it_compiles_for_a_gpu_that_is_not_here(tmp_path):
    assert python(COMPILE, TRITON_CACHE_DIR=str(tmp_path)) == "True"

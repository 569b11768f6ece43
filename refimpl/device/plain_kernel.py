"""A decode kernel to learn from, and what runs it, or a learner's own: compiled on CUDA, else interpreted on the CPU.

One program is one query head of one sequence and goes through its blocks as `plain_attention.attend_in_blocks` does.
It shares no block among the heads of a group and splits no context; `triton_kernels` holds the kernel that serves.
Triton's interpreter turns a wrong index into a raw address, so an interpreted kernel is watched: what it reads or
writes outside the tensors it was given is an error that names the tensor, and lanes that a mask shuts hold NaN.
"""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from refimpl.device.attention import paged_attention
from refimpl.device.triton_kernels import paged_attention_triton

try:
    import triton
    import triton.language as tl
    from triton.runtime import interpreter
except ModuleNotFoundError:
    triton = interpreter = None
    tl = types.SimpleNamespace(constexpr="tl.constexpr")  # so that a kernel can be defined, if not run

Kernel = Callable[..., None]

NOT_INSTALLED = (
    "Triton is not installed here, so no kernel can run and this one cannot be judged: Triton is there for Linux on "
    "x86-64, where `pip install triton` adds it."
)


def jit(kernel: Kernel) -> Any:
    """`triton.jit`, whatever the machine: where Triton is missing, the kernel can still be written and not run."""
    return kernel if triton is None else triton.jit(kernel)


def decode_kernel(  # type: ignore[no-untyped-def]  # Triton would look annotations up as values
    output,
    query,
    key_cache,
    value_cache,
    block_tables,
    context_lens,
    scale,
    query_strides,
    cache_strides,
    table_strides,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    """Decode attention: one program attends with one query head of one sequence, block after block.

    The first six are pointers to the first element of each tensor; strides are in elements and in the order of the
    axes. output, query: [num_seqs, num_heads, HEAD_DIM]; key_cache, value_cache: [num_blocks, BLOCK_SIZE,
    num_kv_heads, HEAD_DIM]; block_tables: [num_seqs, max_blocks]; context_lens: [num_seqs]. GROUP query heads read
    one KV head.
    """
    seq = tl.program_id(0)
    head = tl.program_id(1)
    context_len = tl.load(context_lens + seq).to(tl.int32)
    offsets = tl.arange(0, BLOCK_SIZE)
    dims = tl.arange(0, HEAD_DIM)
    q = tl.load(query + seq * query_strides[0] + head * query_strides[1] + dims * query_strides[2])

    largest = float("-inf")
    total = 0.0
    result = tl.full([HEAD_DIM], 0.0, tl.float32)
    for first in range(0, context_len, BLOCK_SIZE):
        block = tl.load(block_tables + seq * table_strides[0] + first // BLOCK_SIZE * table_strides[1])
        rows = block * cache_strides[0] + offsets * cache_strides[1] + head // GROUP * cache_strides[2]
        elements = rows[:, None] + dims[None, :] * cache_strides[3]
        is_token = first + offsets < context_len
        keys = tl.load(key_cache + elements, mask=is_token[:, None], other=0.0)
        values = tl.load(value_cache + elements, mask=is_token[:, None], other=0.0)
        scores = tl.sum(q[None, :] * keys, 1) * scale
        scores = tl.where(is_token, scores, float("-inf"))
        new_largest = tl.maximum(largest, tl.max(scores, 0))
        decay = tl.exp(largest - new_largest)
        weights = tl.exp(scores - new_largest)
        total = total * decay + tl.sum(weights, 0)
        result = result * decay + tl.sum(weights[:, None] * values, 0)
        largest = new_largest

    result = result / tl.where(total == 0.0, 1.0, total)  # a context of 0 tokens gives 0
    tl.store(output + seq * query_strides[0] + head * query_strides[1] + dims * query_strides[2], result)


def run_kernel(
    kernel: Any,
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_tables: Tensor,
    context_lens: Tensor,
    scale: float | None = None,
) -> Tensor:
    """What a kernel with `decode_kernel`'s arguments computes: compiled for tensors on CUDA, else interpreted.

    Args:
        kernel: the function, with or without `jit` around it.
        query, key_cache, value_cache, block_tables, context_lens, scale: as for `plain_attention.paged_attention`;
            head_dim and block size are powers of two, keys and values have the same strides, and all is float32
            where it is interpreted.

    Returns:
        [num_seqs, num_heads, head_dim]; NaN where the kernel wrote nothing.

    Raises:
        ValueError: for tensors that no such kernel takes.
        IndexError: when an interpreted kernel leaves the tensors; whatever else the kernel raises, as it raised it.
        RuntimeError: where Triton is not installed.
    """
    if triton is None:
        raise RuntimeError(NOT_INSTALLED)
    num_kv_heads, head_dim = key_cache.shape[2:]
    for what, size in (("head_dim", head_dim), ("the block size", key_cache.shape[1])):
        if size & (size - 1):
            raise ValueError(f"{what} is {size}, and a Triton kernel's ranges are powers of two")
    if key_cache.stride() != value_cache.stride():
        raise ValueError(f"keys are strided {key_cache.stride()} and values {value_cache.stride()}: make them alike")
    query = query.contiguous()
    output = torch.full_like(query, torch.nan)
    pointers = (output, query, key_cache, value_cache, block_tables, context_lens.contiguous())
    strides = (query.stride(), key_cache.stride(), block_tables.stride())
    sizes = {"GROUP": query.shape[1] // num_kv_heads, "HEAD_DIM": head_dim, "BLOCK_SIZE": key_cache.shape[1]}
    scale = head_dim**-0.5 if scale is None else scale
    function = getattr(kernel, "fn", kernel)
    if query.is_cuda:
        compiled = kernel if isinstance(kernel, triton.JITFunction) else triton.jit(function)
        compiled[tuple(query.shape[:2])](*pointers, scale, *strides, **sizes)
    elif query.numel():
        names = ("output", "query", "key_cache", "value_cache", "block_tables", "context_lens")
        with _watched(dict(zip(names, pointers, strict=True))):
            _interpret(function, query.shape[:2], (*pointers, scale, *strides), sizes)
    return output


def why_no_kernel_runs() -> str | None:
    """Why no kernel runs on this machine, in a sentence, or None where kernels run."""
    return NOT_INSTALLED if triton is None else None


def where_kernels_run() -> str:
    """Where `run_kernel` runs a kernel on this machine, in words."""
    if triton is None:
        return "nowhere: Triton is not installed"
    if torch.cuda.is_available():
        return f"compiled, on {torch.cuda.get_device_name()}"
    return "in Triton's interpreter on the CPU, in float32: no CUDA device was found"


def demonstrate(kernel: Any = None) -> str:
    """Run a kernel over a few sequences in scattered blocks and say where it ran and how far it is from torch.

    Args:
        kernel: one for `run_kernel`; `triton_kernels.paged_attention_triton`, the one that serves, when left out.

    Returns:
        One or two sentences; whatever the kernel raises is told in them.
    """
    if triton is None:
        return NOT_INSTALLED
    compiled = torch.cuda.is_available()
    lens = [1000, 17, 400, 1] if compiled else [17, 8, 1]
    batch = _scattered(lens, "cuda" if compiled else "cpu")
    where = f"On {torch.cuda.get_device_name()}, compiled" if compiled else "On the CPU, in Triton's interpreter"
    size = f"{where}: {len(lens)} sequences of {', '.join(map(str, lens))} tokens in float32."
    try:
        if kernel is None:
            output = paged_attention_triton(*batch, scale=batch[0].shape[-1] ** -0.5)
        else:
            output = run_kernel(kernel, *batch)
    except Exception as error:  # noqa: BLE001  (a learner's kernel may raise anything)
        return f"{size} The kernel raised {type(error).__name__}."
    apart = float((output - paged_attention(*batch, backend="torch")).abs().max())
    return f"{size} It {'agrees with' if apart < 1e-4 else 'differs from'} the torch version."


def _scattered(lens: list[int], device: str) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Query, caches, tables and lengths: 2 query heads, 1 KV head of 16, blocks of 8 in random order."""
    generator = torch.Generator().manual_seed(0)
    needed = [-(-context_len // 8) for context_len in lens]
    order = torch.randperm(sum(needed), generator=generator)
    tables = torch.zeros(len(lens), max(needed), dtype=torch.int64)
    for row, blocks in zip(tables, order.split(needed), strict=True):  # type: ignore[no-untyped-call]
        row[: len(blocks)] = blocks
    shapes = (len(lens), 2, 16), (sum(needed), 8, 1, 16), (sum(needed), 8, 1, 16)
    query, keys, values = (torch.randn(shape, generator=generator).to(device) for shape in shapes)
    return query, keys, values, tables.to(device), torch.tensor(lens, device=device)


def _interpret(function: Kernel, grid: tuple[int, ...], arguments: tuple[Any, ...], sizes: dict[str, int]) -> None:
    """Run the programs one after the other. What the kernel raises comes as the kernel raised it."""
    with _interpreted_library():
        programs = interpreter.GridExecutor(_for_the_interpreter(function), list(sizes), tuple(grid))
        try:
            programs(*arguments, **sizes)
        except interpreter.InterpreterError as error:
            cause: BaseException = error
            while isinstance(cause, interpreter.InterpreterError) and cause.__cause__ is not None:
                cause = cause.__cause__
            raise cause from None


def _for_the_interpreter(kernel: Kernel) -> Kernel:
    """The kernel as the interpreter wants it, with names of its own: it would leave dozens of its in a notebook.

    Functions that it calls are interpreted as well, with or without `jit` around them.
    """
    names = dict(kernel.__globals__)
    names |= {"interpreter_semantic": interpreter.interpreter_semantic, "core": tl.core}  # as it looks for them

    def rewritten(function: Kernel) -> Kernel:
        code = _rewritten(function.__code__)
        copied = types.FunctionType(code, names, function.__name__, function.__defaults__, function.__closure__)
        copied.__annotations__ = function.__annotations__
        return copied

    for name, value in kernel.__globals__.items():
        if isinstance(value, triton.JITFunction):
            names[name] = rewritten(value.fn)
    return rewritten(kernel)


@functools.lru_cache(maxsize=32)
def _rewritten(code: types.CodeType) -> types.CodeType:
    """Code in which whatever is assigned becomes a tensor of Triton's."""
    if code.co_freevars:
        raise TypeError(
            f"a kernel knows the names of its notebook, and none of a function around it: {code.co_freevars}"
        )
    function: types.FunctionType = interpreter.InterpretedFunction(types.FunctionType(code, {})).rewrite()
    return function.__code__


@contextlib.contextmanager
def _interpreted_library() -> Iterator[None]:
    """Triton's own functions that are written in Triton (`tl.sum`, `tl.max`, …), interpreted as well, for a while.

    They are if TRITON_INTERPRET is set before Triton is first imported, which nobody can see to in a notebook.
    """
    places = (tl, tl.standard, tl.tensor)  # as a function, and as a method of what it is about
    before = [(place, name, vars(place)[name]) for place in places for name in _library() if name in vars(place)]
    try:
        for place, name, _ in before:
            setattr(place, name, _library()[name])
        yield
    finally:
        for place, name, member in before:
            setattr(place, name, member)


@functools.cache
def _library() -> dict[str, Callable[..., Any]]:
    """Triton's functions in Triton, by name, as the interpreter wants them."""
    triton.runtime.jit.mangle_type(0)  # its first call imports modules that want the library as it is
    members = list(vars(tl.standard).items())
    return {
        name: interpreter.InterpretedFunction(member.fn).rewrite()
        for name, member in members
        if isinstance(member, triton.JITFunction)
    }


@contextlib.contextmanager
def _watched(tensors: dict[str, Tensor]) -> Iterator[None]:
    """Let an interpreted kernel read and write in these tensors alone, and poison what a mask shuts.

    The kernel is given made-up addresses, far apart, so that each tells which pointer it was made from.
    """
    memories = [
        _Memory(name, tensor, (number + 1) * _FAR_APART) for number, (name, tensor) in enumerate(tensors.items())
    ]
    builder, convert = interpreter.interpreter_builder, interpreter._implicit_cvt
    load, store = builder.create_masked_load, builder.create_masked_store

    def with_made_up_address(argument: Any) -> Any:
        converted = convert(argument)
        for memory in memories:
            if isinstance(argument, Tensor) and argument.data_ptr() == memory.tensor.data_ptr():
                converted.handle.data[:] = memory.start
        return converted

    def real(does: str, ptrs: Any, mask: Any) -> Any:
        made_up = ptrs.data.astype("int64")
        addresses = made_up.copy()
        nowhere = mask.data.copy()
        for memory in memories:
            here = abs(made_up - memory.start) < _FAR_APART // 2
            memory.insist_on_inside(does, made_up[here & mask.data])
            addresses[here] += memory.tensor.data_ptr() - memory.start
            nowhere[here] = False
        if nowhere.any():
            raise IndexError(f"the kernel {does} at an address that is no tensor's")
        return interpreter.TensorHandle(addresses.astype("uint64"), ptrs.dtype)

    def watched_load(ptrs: Any, mask: Any, other: Any, *rest: Any) -> Any:
        loaded = load(real("reads", ptrs, mask), mask, other, *rest)
        if other is None and loaded.data.dtype.kind == "f":
            loaded.data[~mask.data] = float("nan")  # compiled, such a lane may hold anything
        return loaded

    def watched_store(ptrs: Any, value: Any, mask: Any, *rest: Any) -> Any:
        return store(real("writes", ptrs, mask), value, mask, *rest)

    def no_atomics(*_: Any) -> Any:
        raise TypeError("a decode kernel needs no atomic operation: no other program writes its output")

    options = builder.options
    builder.options = replace(options, sanitize_overflow=False)  # half of the time, and whole addresses are checked
    builder.create_masked_load, builder.create_masked_store = watched_load, watched_store
    builder.create_atomic_rmw = builder.create_atomic_cas = no_atomics
    interpreter._implicit_cvt = with_made_up_address
    try:
        yield
    finally:
        del builder.create_masked_load, builder.create_masked_store
        del builder.create_atomic_rmw, builder.create_atomic_cas
        builder.options, interpreter._implicit_cvt = options, convert


_FAR_APART = 2**56  # bytes: no index of a small tensor leads from one to another


@dataclass(frozen=True, slots=True)
class _Memory:
    """A tensor and the address that a kernel takes it to begin at."""

    name: str
    tensor: Tensor
    start: int

    def insist_on_inside(self, does: str, addresses: Any) -> None:
        """IndexError for the first address outside the tensor."""
        elements = (addresses - self.start) // self.tensor.element_size()
        extent = 1 + sum(
            (size - 1) * stride for size, stride in zip(self.tensor.shape, self.tensor.stride(), strict=True)
        )
        outside = elements[(elements < 0) | (elements >= extent)]
        if outside.size:
            raise IndexError(
                f"the kernel {does} element {outside[0]} of {self.name}, whose elements are 0 to {extent - 1}"
            )

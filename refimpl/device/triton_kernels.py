"""Decode attention in Triton: one kernel that splits each context over many programs, and one that merges the splits.

The same source is compiled where there is CUDA and interpreted on a CPU otherwise, there in float32 and at small sizes.
Keys and values are read once, sums are float32, and what unused slots hold never reaches a result. Inputs have been
validated by `attention.paged_attention`, which is the way in; nothing here waits for the device.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

try:
    import triton
    import triton.language as tl
except ModuleNotFoundError:
    triton = tl = None

# tl.max and tl.sum cannot be interpreted when triton was imported before interpretation was switched on; these can.
_larger = tl.standard._elementwise_max if triton else None
_plus = tl.standard._sum_combine if triton else None

_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
_SMALLEST_DOT = 16  # tl.dot multiplies tiles of 16 rows, 16 columns and 16 terms at least
_LOG2_E = math.log2(math.e)


def _jit(function: Callable[..., None]) -> Any:
    """`triton.jit`, interpreting where there is no CUDA; the variable that says so is as it was afterwards."""
    if triton is None:
        return function
    if torch.cuda.is_available():
        return triton.jit(function)
    before = os.environ.get("TRITON_INTERPRET")
    os.environ["TRITON_INTERPRET"] = "1"
    try:
        return triton.jit(function)
    finally:
        if before is None:
            del os.environ["TRITON_INTERPRET"]
        else:
            os.environ["TRITON_INTERPRET"] = before


@dataclass(frozen=True, slots=True)
class KernelConfig:
    """How the decode kernel is laid out on the device; the result does not depend on it but for rounding.

    tile_bytes: of keys (and as many of values) that a program reads at a time, which decides the tokens in a tile.
    num_warps: as Triton means it, doubled in float32, where products take registers instead of tensor cores.
    num_stages: as Triton means it; half of them are tiles in flight, for block numbers are fetched ahead of the keys.
    programs_per_sm: how many programs a multiprocessor is expected to hold at a time; splits fill whole waves of them.
    """

    tile_bytes: int = 16 * 1024
    num_warps: int = 4
    num_stages: int = 5
    programs_per_sm: int = 3

    def tile(self, head_dim: int, itemsize: int) -> int:
        """Tokens in a tile: a power of two, 16 to 128. An element takes `itemsize` bytes."""
        tokens = self.tile_bytes // (_padded(head_dim) * itemsize)
        return min(max(tokens, _SMALLEST_DOT), 128)


# Three programs of 72 KiB of shared memory each fit a multiprocessor of 227 KiB, and hold 192 KiB of tiles in flight.
DEFAULT_CONFIG = KernelConfig()
CONFIGS_TO_TRY = (
    DEFAULT_CONFIG,
    KernelConfig(num_stages=3, programs_per_sm=3),
    KernelConfig(num_stages=7, programs_per_sm=2),
    KernelConfig(num_warps=8, programs_per_sm=2),
    KernelConfig(num_warps=2, programs_per_sm=3),
    KernelConfig(tile_bytes=8 * 1024, programs_per_sm=4),
    KernelConfig(tile_bytes=8 * 1024, num_stages=7, programs_per_sm=4),
    KernelConfig(tile_bytes=8 * 1024, num_warps=2, num_stages=7, programs_per_sm=4),
    KernelConfig(tile_bytes=32 * 1024, num_stages=3, programs_per_sm=2),
    KernelConfig(tile_bytes=32 * 1024, num_warps=8, num_stages=3, programs_per_sm=2),
    KernelConfig(tile_bytes=32 * 1024, num_warps=8, num_stages=5, programs_per_sm=1),
)
_MAX_SPLIT_LEN = 1024  # tokens: a long sequence among short ones still spreads over many programs
_MIN_SPLIT_TILES = 2  # below that, starting a program and merging its result cost more than the work it shares


def why_unavailable(query: Tensor) -> str | None:
    """Why the kernel cannot run for tensors like this one, in one line with what to do, or None where it can.

    >>> why_unavailable(torch.zeros(1, 4, 8, dtype=torch.float64))
    'the Triton kernel takes float32, float16 or bfloat16, the query is float64: use backend="torch"'
    """
    if triton is None:
        return 'triton is not installed: pip install triton (Linux, x86-64), or use backend="torch"'
    dtype = str(query.dtype).removeprefix("torch.")
    if query.dtype not in _DTYPES:
        return f'the Triton kernel takes float32, float16 or bfloat16, the query is {dtype}: use backend="torch"'
    if _interpreted() and query.dtype != torch.float32:
        return f'the Triton interpreter is right in float32 only, the query is {dtype}: use backend="torch"'
    if not _interpreted() and not query.is_cuda:
        return (
            "the Triton kernel was compiled for CUDA and the query is on the CPU: move it, "
            "or set TRITON_INTERPRET=1 before refimpl is imported"
        )
    return None


def paged_attention_triton(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_tables: Tensor,
    context_lens: Tensor,
    *,
    scale: float,
    num_splits: int | None = None,
) -> Tensor:
    """Decode attention over split contexts; the arguments are `paged_attention`'s, and valid.

    Args:
        query: [num_seqs, num_heads, head_dim].
        key_cache, value_cache: [num_blocks, block_size, num_kv_heads, head_dim], any strides.
        block_tables: [num_seqs, max_blocks_per_seq], int. Splits are made for the tokens that a whole row has room
            for, because the lengths are on the device: a table cut to the longest sequence saves empty programs.
        context_lens: [num_seqs], int, tokens.
        scale: factor of the scores.
        num_splits: parts of a full context, about; as many as fill the device when left out.

    Returns:
        [num_seqs, num_heads, head_dim], dtype of the query.

    Source: FlashAttention-2 (arXiv 2307.08691), section 3.1, for the online softmax; "Flash-Decoding for long-context
    inference" (Dao, Haziza, Massa, Sizov, 2023) for the splits; vLLM 0.5.4, `csrc/attention/attention_kernels.cu`,
    `paged_attention_v2_kernel`.
    """
    output = torch.empty_like(query)
    return decode_into(
        output, query, key_cache, value_cache, block_tables, context_lens, scale=scale, num_splits=num_splits
    )


def decode_into(
    output: Tensor,
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_tables: Tensor,
    context_lens: Tensor,
    *,
    scale: float,
    num_splits: int | None = None,
    config: KernelConfig = DEFAULT_CONFIG,
) -> Tensor:
    """As `paged_attention_triton`, into `output`, of the query's shape and dtype, which is written whole."""
    num_seqs, num_heads, head_dim = query.shape
    block_size, num_kv_heads = key_cache.shape[1:3]
    if not query.numel():
        return output
    group = num_heads // num_kv_heads
    tile = config.tile(head_dim, query.element_size())
    capacity = block_tables.shape[1] * block_size
    split_len = _split_len(capacity, num_seqs * num_kv_heads, tile, num_splits, config, query.device)
    splits = max(1, -(-capacity // split_len))
    lse = query.new_empty((num_seqs, num_heads, splits), dtype=torch.float32)
    # A split that has no other beside it is the result, so it goes where the result goes and nothing is merged.
    partial = output[:, :, None] if splits == 1 else query.new_empty((*lse.shape, head_dim), dtype=torch.float32)
    with torch.cuda.device(query.get_device()):  # -1, a CPU, is nothing to it
        _decode_kernel[(num_seqs * num_kv_heads, splits)](
            query,
            key_cache,
            value_cache,
            block_tables,
            context_lens,
            partial,
            lse,
            scale * _LOG2_E,
            split_len,
            num_kv_heads,
            query.stride(),
            key_cache.stride(),
            value_cache.stride(),
            block_tables.stride(),
            context_lens.stride(),
            partial.stride(),
            lse.stride(),
            GROUP=group,
            ROWS=max(_SMALLEST_DOT, _power_of_two(group)),
            HEAD_DIM=head_dim,
            DIMS=_padded(head_dim),
            BLOCK_SIZE=block_size,
            TILE=tile,
            num_warps=config.num_warps * (2 if query.dtype == torch.float32 else 1),
            num_stages=config.num_stages,
        )
        if splits > 1:
            _merge_kernel[(num_seqs * num_heads,)](
                partial,
                lse,
                context_lens,
                output,
                split_len,
                num_heads,
                partial.stride(),
                lse.stride(),
                context_lens.stride(),
                output.stride(),
                HEAD_DIM=head_dim,
                DIMS=_padded(head_dim),
                TILE=min(16, _power_of_two(splits)),
                num_warps=4,
            )
    return output


@_jit
def _decode_kernel(  # type: ignore[no-untyped-def]  # Triton would look annotations up as values
    query,
    key_cache,
    value_cache,
    block_tables,
    context_lens,
    partial,  # [num_seqs, num_heads, splits, head_dim], each split's attention as if its keys were all
    lse,  # [num_seqs, num_heads, splits], log2 of the sum of 2**score: what a split weighs among the others
    scale_log2,
    split_len,
    num_kv_heads,
    query_strides,
    key_strides,
    value_strides,
    table_strides,
    lens_strides,
    partial_strides,
    lse_strides,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIMS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TILE: tl.constexpr,
):
    """One program: the query heads that share a KV head, over one split of one sequence."""
    seq = (tl.program_id(0) // num_kv_heads).to(tl.int64)
    kv_head = (tl.program_id(0) % num_kv_heads).to(tl.int64)
    split = tl.program_id(1)
    context_len = tl.load(context_lens + seq * lens_strides[0]).to(tl.int32)
    first = split * split_len
    last = tl.minimum(first + split_len, context_len)

    rows = tl.arange(0, ROWS)
    dims = tl.arange(0, DIMS)
    heads = kv_head * GROUP + rows
    is_head = rows < GROUP
    is_dim = dims < HEAD_DIM
    query_rows = query + seq * query_strides[0] + heads * query_strides[1]
    q = tl.load(
        query_rows[:, None] + dims[None, :] * query_strides[2], mask=is_head[:, None] & is_dim[None, :], other=0.0
    )
    table = block_tables + seq * table_strides[0]
    key_dims = key_cache + kv_head * key_strides[2] + dims.to(tl.int64) * key_strides[3]
    value_dims = value_cache + kv_head * value_strides[2] + dims.to(tl.int64) * value_strides[3]

    largest = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.full([ROWS], 0.0, tl.float32)
    result = tl.full([ROWS, DIMS], 0.0, tl.float32)
    for start in range(first, last, TILE):
        positions = start + tl.arange(0, TILE)
        visible = positions < last
        # 64 bits before the multiplication: a pool has more than 2**31 elements.
        block = tl.load(table + positions // BLOCK_SIZE * table_strides[1], mask=visible, other=0).to(tl.int64)
        slot = (positions % BLOCK_SIZE).to(tl.int64)
        is_element = visible[:, None] & is_dim[None, :]
        key_rows = block * key_strides[0] + slot * key_strides[1]
        keys = tl.load(key_dims[None, :] + key_rows[:, None], mask=is_element, other=0.0)
        value_rows = block * value_strides[0] + slot * value_strides[1]
        values = tl.load(value_dims[None, :] + value_rows[:, None], mask=is_element, other=0.0)

        scores = tl.dot(q, tl.trans(keys), input_precision="ieee") * scale_log2
        scores = tl.where(visible[None, :], scores, float("-inf"))
        new_largest = tl.maximum(largest, tl.reduce(scores, 1, _larger))
        shift = tl.where(new_largest == float("-inf"), 0.0, new_largest)  # else -inf minus -inf, which is NaN
        decay = tl.exp2(largest - shift)
        weights = tl.exp2(scores - shift[:, None])
        total = total * decay + tl.reduce(weights, 1, _plus)
        result = tl.dot(weights.to(values.dtype), values, result * decay[:, None], input_precision="ieee")
        largest = new_largest

    # The merge does not look at a split behind the end of its sequence. Without a merge the first is the result.
    is_written = is_head & ((first < context_len) | (split == 0))
    total = tl.where(total == 0.0, 1.0, total)  # no tokens: zeros, and an lse of -inf
    partial_rows = partial + seq * partial_strides[0] + heads * partial_strides[1] + split * partial_strides[2]
    tl.store(
        partial_rows[:, None] + dims[None, :] * partial_strides[3],
        result / total[:, None],
        mask=is_written[:, None] & is_dim[None, :],
    )
    lse_rows = lse + seq * lse_strides[0] + heads * lse_strides[1] + split * lse_strides[2]
    tl.store(lse_rows, largest + tl.log2(total), mask=is_written)


@_jit
def _merge_kernel(  # type: ignore[no-untyped-def]  # Triton would look annotations up as values
    partial,
    lse,
    context_lens,
    output,
    split_len,
    num_heads,
    partial_strides,
    lse_strides,
    lens_strides,
    output_strides,
    HEAD_DIM: tl.constexpr,
    DIMS: tl.constexpr,
    TILE: tl.constexpr,
):
    """One program: the splits of one head of one sequence, weighed as if they were keys whose scores are their lse."""
    seq = (tl.program_id(0) // num_heads).to(tl.int64)
    head = (tl.program_id(0) % num_heads).to(tl.int64)
    context_len = tl.load(context_lens + seq * lens_strides[0]).to(tl.int32)
    used = (context_len + split_len - 1) // split_len
    dims = tl.arange(0, DIMS)
    is_dim = dims < HEAD_DIM
    lse_row = lse + seq * lse_strides[0] + head * lse_strides[1]
    partial_row = partial + seq * partial_strides[0] + head * partial_strides[1]

    largest = tl.full([1], float("-inf"), tl.float32)
    total = tl.full([1], 0.0, tl.float32)
    result = tl.full([DIMS], 0.0, tl.float32)
    for start in range(0, used, TILE):
        splits = start + tl.arange(0, TILE)
        is_used = splits < used
        scores = tl.load(lse_row + splits * lse_strides[2], mask=is_used, other=float("-inf"))
        parts = tl.load(
            partial_row + splits[:, None] * partial_strides[2] + dims[None, :] * partial_strides[3],
            mask=is_used[:, None] & is_dim[None, :],
            other=0.0,
        )
        new_largest = tl.maximum(largest, tl.reduce(scores, 0, _larger, keep_dims=True))
        shift = tl.where(new_largest == float("-inf"), 0.0, new_largest)
        decay = tl.exp2(largest - shift)
        weights = tl.exp2(scores - shift)
        total = total * decay + tl.reduce(weights, 0, _plus, keep_dims=True)
        result = result * decay + tl.reduce(weights[:, None] * parts, 0, _plus)
        largest = new_largest

    output_row = output + seq * output_strides[0] + head * output_strides[1]
    tl.store(output_row + dims * output_strides[2], result / tl.where(total == 0.0, 1.0, total), mask=is_dim)


def _interpreted() -> bool:
    return not isinstance(_decode_kernel, triton.JITFunction)


def _split_len(
    capacity: int, programs: int, tile: int, num_splits: int | None, config: KernelConfig, device: torch.device
) -> int:
    """Tokens in a split, a multiple of the tile, for contexts of up to `capacity` tokens.

    `programs` is how many a single split makes. Without `num_splits`: the least number of splits whose programs leave
    less than a tenth of the device idle in their last wave, or else the one that leaves least.
    """
    tiles = max(1, -(-capacity // tile))
    if num_splits is None:
        at_a_time = _multiprocessors(device) * config.programs_per_sm
        fewest = max(1, -(-capacity // _MAX_SPLIT_LEN))
        most = max(fewest, tiles // _MIN_SPLIT_TILES)
        num_splits = _fill_waves(programs, at_a_time, fewest, most)
    return -(-tiles // max(1, num_splits)) * tile


@functools.cache
def _fill_waves(programs: int, at_a_time: int, fewest: int, most: int) -> int:
    """The number of splits, `fewest` to `most`, after whose `programs` each the device idles least."""

    def busy(splits: int) -> float:
        return programs * splits / (-(-programs * splits // at_a_time) * at_a_time)

    for splits in range(fewest, most + 1):
        if busy(splits) >= 0.9:
            return splits
    return max(range(fewest, most + 1), key=busy)


@functools.cache
def _multiprocessors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1


def _padded(head_dim: int) -> int:
    return max(_SMALLEST_DOT, _power_of_two(head_dim))


def _power_of_two(number: int) -> int:
    """The least power of two that is not below `number`."""
    return 1 << (number - 1).bit_length()

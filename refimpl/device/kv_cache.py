"""The keys and values themselves: one pool of blocks on the compute device and one in host memory, for every layer.

A block number is an index into a pool and a slot is `block * block_size + offset`; whose tokens lie there is for the
block manager to know. A request for a block or slot outside its pool, or for an impossible copy, changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from math import prod

import numpy
import torch
from torch import Tensor

from refimpl.block import kv_bytes_per_block

PADDING_SLOT = -1
STAGING_BLOCKS = 64  # on CUDA, blocks that can be on their way to the host while the GPU goes on computing

Pairs = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class CheckedSlots:
    """A slot mapping that a cache has found good, for the writes of all layers of a step: `KVCache.check_slots`.

    rows: [num_written * 2 * num_kv_heads], int64, on the cache's device: the rows of a layer's pool, keys and values,
    one for each head of each token that is written. tokens: [num_written], which of the step's tokens these are, None
    for all of them. num_tokens: tokens in the step, padding included. slots: the mapping itself.
    """

    rows: Tensor
    tokens: Tensor | None
    num_tokens: int
    slots: Tensor


class KVCache:
    """Keys and values of every layer, in blocks.

    Owns `gpu` and `cpu`, two tensors [num_layers, 2, num_blocks, block_size, num_kv_heads, head_dim] in which index 0
    of the second axis is the keys and 1 the values. "GPU" names the pool that attention reads, on whatever `device` it
    is; the CPU pool holds what has been swapped out. Fresh blocks hold zeros, used ones whatever was written last.
    In memory the tokens of one head of a block lie together, because that is what attention reads at a time: both
    tensors are views of pools in which num_kv_heads comes before block_size.

    What is called first is done first: in a step call `swap_in`, `swap_out`, `copy` in this order, then compute. On
    CUDA "done" is in the order of the stream on which the caller computes, and only the way over the bus is left to
    the side (`StagedSwap`): a swap out copies its blocks aside at once, so they may be written again right away, and
    what travels to the host meanwhile overlaps the computing that follows; a swap in holds up what is called after it
    until its blocks have arrived. On other devices every call returns when its work is done.

    Args:
        num_layers, num_kv_heads, head_dim: shape of the model.
        num_gpu_blocks, num_cpu_blocks: sizes of the two pools, in blocks.
        block_size: tokens a block.
        dtype: float32, float16 or bfloat16.
        device: where the GPU pool lies.

    Raises:
        ValueError: for a negative pool, another size below 1, or pools that memory cannot hold.

    >>> cache = KVCache(1, 4, 0, block_size=2, num_kv_heads=1, head_dim=3, dtype=torch.float32, device="cpu")
    >>> key = torch.ones(2, 1, 3)
    >>> cache.write(0, key, 2 * key, torch.tensor([7, -1]))
    >>> cache.copy([(3, 0)])
    >>> cache.value_cache(0)[0, 1, 0].tolist()
    [2.0, 2.0, 2.0]

    Source: vLLM 0.5.4, `vllm/worker/cache_engine.py`, `CacheEngine`; PagedAttention paper, section 4.
    """

    def __init__(
        self,
        num_layers: int,
        num_gpu_blocks: int,
        num_cpu_blocks: int,
        block_size: int,
        num_kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device | str,
    ) -> None:
        _check_sizes(num_layers, num_gpu_blocks, num_cpu_blocks, block_size, num_kv_heads, head_dim)
        block_shape = (num_kv_heads, block_size, head_dim)
        device = torch.empty(0, device=device).device  # one that is missing says so here, not as a lack of memory
        on_cuda = device.type == "cuda"
        self._gpu = _new_pool(num_gpu_blocks, (num_layers, 2, num_gpu_blocks, *block_shape), dtype, device)
        host = _new_pool(num_cpu_blocks, (num_cpu_blocks, num_layers, 2, *block_shape), dtype, pinned=on_cuda)
        self._cpu = host.movedim(0, 2)  # a block is one piece of host memory: one transfer moves all its layers
        self._swap = StagedSwap(self._gpu, self._cpu, SideStream(device)) if on_cuda and num_cpu_blocks else None
        self.gpu = self._gpu.transpose(3, 4)
        self.block_size = block_size
        self._num_slots = num_gpu_blocks * block_size
        self._token_shape = (num_kv_heads, head_dim)
        self._layers = [(layer[0], layer[1]) for layer in self.gpu]
        self._rows = list(self._gpu.view(num_layers, 2 * self._num_slots * num_kv_heads, head_dim))  # of each layer

    @staticmethod
    def bytes_per_block(num_layers: int, block_size: int, num_kv_heads: int, head_dim: int, dtype: torch.dtype) -> int:
        """Bytes of one block over all layers, keys and values.

        >>> KVCache.bytes_per_block(30, 16, 3, 64, torch.float32)
        737280
        """
        return kv_bytes_per_block(block_size, num_layers, num_kv_heads, head_dim, dtype.itemsize)

    @property
    def cpu(self) -> Tensor:
        """The pool of swapped blocks, in host memory; reading it waits for the swaps that are under way."""
        if self._swap is not None:
            self._swap.synchronize()
        return self._cpu.transpose(3, 4)

    def key_cache(self, layer: int) -> Tensor:
        """The layer's keys in the GPU pool, a view: [num_gpu_blocks, block_size, num_kv_heads, head_dim]."""
        key_cache: Tensor = self._layers[layer][0]
        return key_cache

    def value_cache(self, layer: int) -> Tensor:
        """The layer's values in the GPU pool, a view of the same shape as the keys."""
        value_cache: Tensor = self._layers[layer][1]
        return value_cache

    def check_slots(self, slot_mapping: Tensor) -> CheckedSlots:
        """Check a step's slots once, for `write` to use in every layer.

        Args:
            slot_mapping: [num_tokens], int64, distinct slots, -1 for padding. Best on the host, where checking it
                need not wait for what a GPU has under way; it is moved afterwards.

        Raises:
            ValueError: for a slot outside the pool, or a tensor of another form.

        >>> cache = KVCache(1, 4, 0, block_size=2, num_kv_heads=1, head_dim=3, dtype=torch.float32, device="cpu")
        >>> checked = cache.check_slots(torch.tensor([7, -1, 4]))
        >>> checked.rows.tolist(), checked.tokens.tolist()
        ([7, 15, 4, 12], [0, 2])
        """
        if slot_mapping.dim() != 1 or slot_mapping.dtype not in (torch.int64, torch.int32):
            form = f"{list(slot_mapping.shape)} of {slot_mapping.dtype}"
            raise ValueError(f"slot_mapping is {form}, it must be [num_tokens] of torch.int64")
        mapping, device, on_host = slot_mapping, self.gpu.device, slot_mapping.device.type == "cpu"
        num_tokens, tokens = len(slot_mapping), None
        lowest, highest = (int(slot) for slot in slot_mapping.aminmax()) if num_tokens else (0, -1)
        if lowest < PADDING_SLOT or highest >= self._num_slots:
            raise self._no_such_slot(slot_mapping)
        if lowest < 0:
            tokens = (slot_mapping >= 0).nonzero().flatten()
            slot_mapping, tokens = slot_mapping[tokens], tokens.to(device, non_blocking=on_host)
        num_kv_heads, slots = self._token_shape[0], slot_mapping.long()[:, None]
        first_row = slots // self.block_size * (num_kv_heads * self.block_size) + slots % self.block_size
        key_rows = first_row + torch.arange(num_kv_heads, device=slots.device) * self.block_size
        rows = torch.cat((key_rows, key_rows + num_kv_heads * self._num_slots), dim=1).flatten()
        return CheckedSlots(rows.to(device, non_blocking=on_host), tokens, num_tokens, mapping)

    def write(self, layer: int, key: Tensor, value: Tensor, slot_mapping: Tensor | CheckedSlots) -> None:
        """Put the keys and values of some tokens into their slots of the GPU pool.

        Args:
            layer: index of the layer.
            key, value: [num_tokens, num_kv_heads, head_dim].
            slot_mapping: [num_tokens], int64, distinct slots; a token whose slot is -1 is padding and is not written.
                Who writes many layers hands over what `check_slots` has made of it, and the slots are checked once.

        Raises:
            ValueError: for shapes that do not match, or a slot outside the pool.
        """
        checked = slot_mapping if isinstance(slot_mapping, CheckedSlots) else self.check_slots(slot_mapping)
        expected = (checked.num_tokens, *self._token_shape)
        if key.shape != expected or value.shape != expected:
            raise ValueError(
                f"key is {list(key.shape)} and value is {list(value.shape)}, both must be {list(expected)}: "
                f"[slots in slot_mapping, num_kv_heads, head_dim]"
            )
        written = torch.cat((key, value), dim=1)
        if checked.tokens is not None:
            written = written[checked.tokens]
        rows = self._rows[layer]
        rows.index_copy_(0, checked.rows, written.view(-1, rows.shape[1]).to(rows.dtype))

    def copy(self, pairs: Pairs) -> None:
        """Copy blocks inside the GPU pool, all layers, keys and values: copy on write.

        The pairs (source, destination) are meant as one: a block that is source of one pair and destination of
        another is read before it is overwritten.

        Raises:
            ValueError: for a block outside the pool, or a destination that occurs twice.
        """
        self._check_pairs(pairs, ("GPU", "GPU"))
        overwritten = {destination for _, destination in pairs}
        saved = {source: self._gpu[:, :, source].clone() for source, _ in pairs if source in overwritten}
        for source, destination in pairs:
            self._gpu[:, :, destination] = saved[source] if source in saved else self._gpu[:, :, source]

    def swap_out(self, pairs: Pairs) -> None:
        """Copy blocks from the GPU pool to the CPU pool. Pairs are (GPU block, CPU block); errors as for `copy`."""
        self._check_pairs(pairs, ("GPU", "CPU"))
        if self._swap is not None:
            self._swap.out(pairs)
        else:
            _copy_blocks(self._gpu, self._cpu, pairs)

    def swap_in(self, pairs: Pairs) -> None:
        """Copy blocks from the CPU pool to the GPU pool. Pairs are (CPU block, GPU block); errors as for `copy`."""
        self._check_pairs(pairs, ("CPU", "GPU"))
        if self._swap is not None:
            self._swap.back(pairs)
        else:
            _copy_blocks(self._cpu, self._gpu, pairs)

    def _check_pairs(self, pairs: Pairs, pools: tuple[str, str]) -> None:
        """ValueError for a block that is not in its pool, "GPU" or "CPU", or a destination that occurs twice."""
        sizes = {"GPU": self.gpu.shape[2], "CPU": self._cpu.shape[2]}
        for pair in pairs:
            for block, pool in zip(pair, pools, strict=True):
                if not 0 <= block < sizes[pool]:
                    raise ValueError(
                        f"block {block} is not in the {pool} pool, which holds blocks 0 to {sizes[pool] - 1}"
                    )
        destinations = set()
        for _, destination in pairs:
            if destination in destinations:
                raise ValueError(f"{pools[1]} block {destination} is the destination of more than one pair")
            destinations.add(destination)

    def _no_such_slot(self, slots: Tensor) -> ValueError:
        """What is wrong with the first slot that is neither padding nor inside the GPU pool."""
        slot = int(slots[(slots < PADDING_SLOT) | (slots >= self._num_slots)][0])
        return ValueError(
            f"slot {slot} is in block {slot // self.block_size}, the GPU pool holds {self.gpu.shape[2]} blocks of "
            f"{self.block_size} slots: was it computed with this block_size?"
        )


class SideStream:
    """A CUDA stream for transfers, beside the stream on which the caller computes.

    A wait keeps one stream from going on before an event in the other: all that had been queued there until then. The
    caller's own thread waits for neither.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def wait_for_compute(self) -> None:
        """Begin what is queued here from now on only after what is queued on the compute stream so far."""
        self._stream.wait_stream(torch.cuda.current_stream(self._device))

    def hold_compute(self) -> None:
        """Keep the compute stream from going on before what is queued here so far is done."""
        torch.cuda.current_stream(self._device).wait_stream(self._stream)

    def run(self) -> AbstractContextManager[object]:
        """Inside `with`, work is queued here."""
        return torch.cuda.stream(self._stream)

    def synchronize(self) -> None:
        """Wait, in the caller's own thread, until nothing is queued here."""
        self._stream.synchronize()


class StagedSwap:
    """Swaps blocks by way of a buffer on the GPU, so that the bus works while the GPU computes.

    Owns the buffer, as large as `STAGING_BLOCKS` blocks, and the side stream. The compute stream alone touches the
    GPU pool, so a swap takes its place there between what is called before and after it; the side stream alone
    touches host memory, so blocks of the CPU pool change in the order of the calls, too. The buffer is all that both
    use, and each waits for the other before it takes the buffer over. A block crosses in one transfer, not in one for
    each layer's keys and values, which are a few KiB. Nothing is allocated a swap but the indices, on the compute
    stream, so no memory can be reused while the other stream is still at it.

    Args:
        gpu, cpu: the pools of a `KVCache`, the memory of a CPU block being one piece and pinned.
        side: the side stream.

    Source: vLLM 0.5.4, `csrc/cache_kernels.cu`, `swap_blocks`, which queues a transfer for each block, layer, and
    keys or values, on the stream that computes.
    """

    def __init__(self, gpu: Tensor, cpu: Tensor, side: SideStream) -> None:
        self._gpu, self._host, self._side = gpu, cpu.movedim(2, 0), side
        num_blocks = min(STAGING_BLOCKS, len(self._host))
        self._buffer = _new_pool(num_blocks, (num_blocks, *self._host.shape[1:]), gpu.dtype, gpu.device)

    def out(self, pairs: Pairs) -> None:
        """Copy GPU blocks to CPU blocks. The caller may queue whatever it likes for the GPU blocks next."""
        for gpu_blocks, cpu_blocks in self._parts(pairs):
            staged = self._buffer[: len(gpu_blocks)]
            self._side.hold_compute()
            torch.index_select(self._gpu, 2, self._index(gpu_blocks), out=staged.movedim(0, 2))
            self._side.wait_for_compute()
            with self._side.run():
                for block, cpu_block in zip(staged, cpu_blocks, strict=True):
                    self._host[cpu_block].copy_(block, non_blocking=True)

    def back(self, pairs: Pairs) -> None:
        """Copy CPU blocks to GPU blocks. What the caller queues next finds them there."""
        for cpu_blocks, gpu_blocks in self._parts(pairs):
            staged = self._buffer[: len(gpu_blocks)]
            self._side.wait_for_compute()
            with self._side.run():
                for block, cpu_block in zip(staged, cpu_blocks, strict=True):
                    block.copy_(self._host[cpu_block], non_blocking=True)
            self._side.hold_compute()
            self._gpu.index_copy_(2, self._index(gpu_blocks), staged.movedim(0, 2))

    def synchronize(self) -> None:
        """Wait until the CPU pool holds all that has been swapped out."""
        self._side.synchronize()

    def _parts(self, pairs: Pairs) -> Iterable[tuple[tuple[int, ...], tuple[int, ...]]]:
        """Sources and destinations, as many at a time as the buffer holds."""
        for start in range(0, len(pairs), len(self._buffer)):
            sources, destinations = zip(*pairs[start : start + len(self._buffer)], strict=True)
            yield sources, destinations

    def _index(self, blocks: Sequence[int]) -> Tensor:
        """Block numbers on the GPU, sent there without waiting for it."""
        on_cuda = self._gpu.device.type == "cuda"
        return torch.tensor(blocks, pin_memory=on_cuda).to(self._gpu.device, non_blocking=True)


def slot_mapping(block_table: Sequence[int], positions: Sequence[int], block_size: int) -> Tensor:
    """The slots in which the tokens at `positions` of one sequence keep their keys and values.

    Args:
        block_table: the sequence's block numbers, logical block 0 first.
        positions: token positions, counted from 0; -1 is padding.
        block_size: tokens a block, the same as the cache's.

    Returns:
        [len(positions)], int64, -1 where the position is.

    Raises:
        ValueError: for a position below -1 or behind the last block, or a negative block number.

    >>> slot_mapping([5, 2], [0, 3, 4, -1], block_size=4).tolist()
    [20, 23, 8, -1]

    Source: vLLM 0.5.4, `vllm/attention/backends/utils.py`, `compute_slot_mapping`.
    """
    capacity = len(block_table) * block_size
    for position in (min(positions, default=PADDING_SLOT), max(positions, default=PADDING_SLOT)):
        if not PADDING_SLOT <= position < capacity:
            raise ValueError(
                f"position {position} has no slot: {len(block_table)} blocks of {block_size} hold positions 0 to "
                f"{capacity - 1}"
            )
    if min(block_table, default=0) < 0:
        raise ValueError(f"block table {list(block_table)} has a negative block number")
    slots = [
        block_table[position // block_size] * block_size + position % block_size if position >= 0 else PADDING_SLOT
        for position in positions
    ]
    return torch.tensor(slots, dtype=torch.int64)


def _check_sizes(
    num_layers: int, num_gpu_blocks: int, num_cpu_blocks: int, block_size: int, num_kv_heads: int, head_dim: int
) -> None:
    """ValueError for a size that is too small."""
    for name, size, least in (
        ("num_layers", num_layers, 1),
        ("num_gpu_blocks", num_gpu_blocks, 0),
        ("num_cpu_blocks", num_cpu_blocks, 0),
        ("block_size", block_size, 1),
        ("num_kv_heads", num_kv_heads, 1),
        ("head_dim", head_dim, 1),
    ):
        if size < least:
            raise ValueError(f"{name} is {size}, it must be {least} or more")


def _new_pool(
    num_blocks: int,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    device: torch.device | None = None,
    *,
    pinned: bool = False,
) -> Tensor:
    """Zeros, in host memory when no device is named. ValueError for more than there is.

    Host memory that is not pinned is taken block by block, when they are first written: most runs never swap.
    """
    try:
        if device is None and not pinned and num_blocks:
            unwritten = numpy.zeros(prod(shape) * dtype.itemsize, dtype=numpy.uint8)
            return torch.from_numpy(unwritten).view(dtype).view(shape)
        return torch.zeros(shape, dtype=dtype, device=device or "cpu", pin_memory=pinned)
    # torch: RuntimeError beyond memory, TypeError beyond 64 bits; numpy: MemoryError and ValueError
    except (RuntimeError, TypeError, MemoryError, ValueError) as error:
        flags = "swap_space" if device is None else "num_gpu_blocks_override or gpu_memory_utilization"
        size = prod(shape) * dtype.itemsize
        raise ValueError(f"{num_blocks} blocks take {size} bytes, more than there is: lower {flags}") from error


def _copy_blocks(source: Tensor, destination: Tensor, pairs: Pairs) -> None:
    """Copy blocks from one pool to the other. A block at a time is faster than one indexed copy of all layers."""
    for source_block, destination_block in pairs:
        destination[:, :, destination_block] = source[:, :, source_block]

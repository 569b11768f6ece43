"""Swaps beside the compute stream: whatever the two streams do first, the pools end as if all had been done in order.

A GPU is not needed for that. `TwoQueues` stands in for its streams: what a stream would be given is queued and not
done, and `settle` does it later in an order of its own, which the waits between the queues are all that limits.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from refimpl import KVCache
from refimpl.device import kv_cache
from refimpl.device.kv_cache import StagedSwap

LAYERS, GPU_BLOCKS, CPU_BLOCKS, BLOCK_SIZE = 2, 6, 7, 2
ORDERS = ["compute first", "transfers first", 1, 2, 3, 4]  # a number seeds a random order

_aten = torch.ops.aten
_CHANGES_A_TENSOR = {_aten.copy_.default: 0, _aten.index_copy_.default: 0, _aten.index_select.out: "out"}
_AT_ONCE = {  # views, and the joining of a step's new keys and values, which no queued work touches
    _aten.unbind.int,
    _aten.select.int,
    _aten.slice.Tensor,
    _aten.permute.default,
    _aten.detach.default,
    _aten.lift_fresh.default,
    _aten.view.default,
    _aten.cat.default,
}


class TwoQueues(TorchDispatchMode):
    """A compute stream and a side stream that do nothing until they are made to."""

    def __init__(self, order: str | int) -> None:
        super().__init__()
        self._order = order
        self._random = random.Random(order)
        self._current = "compute"
        self._queues: dict[str, list[Callable[[], object] | tuple[str, int]]] = {"compute": [], "side": []}
        self._done = {"compute": 0, "side": 0}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func in _AT_ONCE:
            return func(*args, **kwargs)
        changed = _CHANGES_A_TENSOR[func]  # a KeyError: an operation that this test does not know how to put off
        self._queues[self._current].append(lambda: func(*args, **kwargs))
        return args[changed] if isinstance(changed, int) else kwargs[changed]

    def wait_for_compute(self) -> None:
        self._queues["side"].append(("compute", len(self._queues["compute"])))

    def hold_compute(self) -> None:
        self._queues["compute"].append(("side", len(self._queues["side"])))

    @contextmanager
    def run(self) -> Iterator[None]:
        self._current = "side"
        yield
        self._current = "compute"

    def synchronize(self) -> None:
        self.settle()

    def settle(self) -> None:
        """Do all that is queued, each queue from its front, the queues in any order that their waits allow."""
        while ready := [name for name in self._queues if self._is_ready(name)]:
            self._do_next(self._choose(ready))
        assert not any(self.num_left(name) for name in self._queues), "the streams wait for each other for ever"

    def run_ahead(self, name: str) -> None:
        """Do what one queue can do by itself, as if the other stood still."""
        while self._is_ready(name):
            self._do_next(name)

    def num_left(self, name: str) -> int:
        """Operations that are queued and not done, waits aside."""
        return sum(callable(work) for work in self._queues[name][self._done[name] :])

    def _do_next(self, name: str) -> None:
        work = self._queues[name][self._done[name]]
        self._done[name] += 1
        if callable(work):
            work()

    def _is_ready(self, name: str) -> bool:
        """Whether there is work and, where it is a wait, the event has happened."""
        if self._done[name] == len(self._queues[name]):
            return False
        work = self._queues[name][self._done[name]]
        return callable(work) or self._done[work[0]] >= work[1]

    def _choose(self, ready: list[str]) -> str:
        preferred = {"compute first": "compute", "transfers first": "side"}.get(self._order)
        return preferred if preferred in ready else self._random.choice(ready)


def numbered_cache(device: str = "cpu") -> KVCache:
    """Every number in both pools is different from every other."""
    cache = KVCache(LAYERS, GPU_BLOCKS, CPU_BLOCKS, BLOCK_SIZE, 1, 3, torch.float32, device)
    cache.gpu.copy_(torch.arange(cache.gpu.numel()).view_as(cache.gpu))
    cache.cpu.copy_(-1.0 - torch.arange(cache.cpu.numel()).view_as(cache.cpu))
    return cache


def random_steps(seed: int, num_steps: int = 4) -> list[dict[str, list[tuple[int, int]]]]:
    """Pairs for each call of some steps. Blocks are taken again at once, as soon as the order of calls allows it."""
    choice = random.Random(seed)
    steps = []
    for _ in range(num_steps):
        gpu, cpu = (choice.sample(range(size), size) for size in (GPU_BLOCKS, CPU_BLOCKS))
        swap_in = list(zip(cpu[: choice.randint(0, 5)], gpu, strict=False))
        freed_cpu = [block for block, _ in swap_in] or cpu[:5]
        swap_out = list(zip(choice.sample(gpu, choice.randint(0, 5)), freed_cpu, strict=False))
        freed_gpu = [block for block, _ in swap_out[:2]]
        copy = [(choice.choice([block for block in gpu if block not in freed_gpu]), block) for block in freed_gpu]
        steps.append({"swap_in": swap_in, "swap_out": swap_out, "copy": copy})
    return steps


def run_steps(cache: KVCache, steps: list[dict[str, list[tuple[int, int]]]]) -> torch.Tensor:
    """Do the steps, each followed by what stands for computing: read all the GPU pool, write one slot a block."""
    seen = torch.empty((len(steps), *cache.gpu.shape), device=cache.gpu.device)
    keys = torch.arange(1000.0, 1000.0 + 6 * len(steps) * LAYERS * GPU_BLOCKS, device=cache.gpu.device)
    keys = keys.view(len(steps), LAYERS, 2, GPU_BLOCKS, 1, 3)
    slots = cache.check_slots(torch.arange(GPU_BLOCKS) * BLOCK_SIZE + 1)

    def run() -> None:
        for index, step in enumerate(steps):
            cache.swap_in(step["swap_in"])
            cache.swap_out(step["swap_out"])
            cache.copy(step["copy"])
            for layer in range(LAYERS):
                cache.write(layer, keys[index, layer, 0], keys[index, layer, 1], slots)
            seen[index].copy_(cache.gpu)

    if isinstance(cache._swap, StagedSwap) and isinstance(cache._swap._side, TwoQueues):
        with cache._swap._side:
            run()
        cache._swap.synchronize()
    else:
        run()
    return seen


def staged_cache(order: str | int) -> KVCache:
    """A cache on the CPU that swaps as it would on CUDA."""
    cache = numbered_cache()
    cache._swap = StagedSwap(cache._gpu, cache._cpu, TwoQueues(order))
    return cache


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("staging_blocks", [2, 64])
def test_the_streams_may_run_in_any_order(monkeypatch, order, staging_blocks):
    """A block freed by a swap is copied to, written or swapped to again in the same step, and nothing is mixed up."""
    monkeypatch.setattr(kv_cache, "STAGING_BLOCKS", staging_blocks)
    for seed in range(30):
        steps = random_steps(seed)
        plain, staged = numbered_cache(), staged_cache(order)
        assert len(staged._swap._buffer) == min(staging_blocks, CPU_BLOCKS), "blocks in the staging buffer"
        expected, seen = run_steps(plain, steps), run_steps(staged, steps)
        assert torch.equal(seen, expected), f"a step computes with other keys or values: {steps}"
        assert torch.equal(staged.gpu, plain.gpu), f"the GPU pool differs: {steps}"
        assert torch.equal(staged.cpu, plain.cpu), f"the CPU pool differs: {steps}"


def test_computing_goes_on_while_a_swap_out_travels():
    """With the transfers held back as long as the waits allow, a step's computing is done before they have begun."""
    cache = staged_cache("compute first")
    queues = cache._swap._side
    before = cache.cpu.clone()
    with queues:
        cache.swap_out([(0, 0), (1, 1)])
        cache.gpu[0, 0, 0].copy_(cache.gpu[0, 0, 2])
    queues.run_ahead("compute")
    assert queues.num_left("compute") == 0, "computing waits for the bus"
    assert torch.equal(cache._cpu.transpose(3, 4), before), "nothing has travelled yet"
    assert torch.equal(cache.cpu[:, :, :2], numbered_cache().gpu[:, :, :2])


def test_reading_the_cpu_pool_waits_for_the_swaps():
    cache = staged_cache("compute first")
    with cache._swap._side:
        cache.swap_out([(3, 4)])
    assert torch.equal(cache.cpu[:, :, 4], numbered_cache().gpu[:, :, 3])


def test_a_block_crosses_in_one_transfer():
    """However many layers there are: on the host a block is one piece of memory, and so it is in the buffer."""
    cache = staged_cache("compute first")
    for block in (cache._swap._host[3], cache._swap._buffer[1]):
        assert block.is_contiguous()
        assert block.nbytes == KVCache.bytes_per_block(LAYERS, BLOCK_SIZE, 1, 3, torch.float32)
    queues = cache._swap._side
    with queues:
        cache.swap_out([(0, 0), (1, 1), (2, 2)])
        cache.swap_in([(0, 3), (1, 4)])
    assert queues.num_left("side") == 5


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device: its streams cannot be tried")
@pytest.mark.parametrize("staging_blocks", [2, 64])
def test_swaps_on_cuda_equal_those_on_the_cpu(monkeypatch, staging_blocks):
    monkeypatch.setattr(kv_cache, "STAGING_BLOCKS", staging_blocks)
    busy = torch.rand(4096, 4096, device="cuda")
    for seed in range(30):
        steps = random_steps(seed)
        plain, on_cuda = numbered_cache(), numbered_cache("cuda")
        assert on_cuda.cpu.is_pinned()
        for _ in range(5):
            busy = busy @ busy / busy.max()  # the compute stream is behind the caller from the start
        seen = run_steps(on_cuda, steps).cpu()
        assert torch.equal(seen, run_steps(plain, steps))
        assert torch.equal(on_cuda.gpu.cpu(), plain.gpu)
        assert torch.equal(on_cuda.cpu, plain.cpu)

"""What the block manager's operations cost, and how that grows with the pool.

Each row is one workload on a fresh manager: blocks of 16 tokens, prompts of 512 tokens, 4096 GPU and 2048 CPU blocks
where the row does not say otherwise. Requests are made outside the clock, since a manager never sees one twice.
Absolute times depend on the machine; compare them with another implementation's in one run.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial

from refimpl.block_manager import BlockSpaceManager
from refimpl.sequence import Sequence, SequenceGroup, SequenceStatus

BLOCK_SIZE = 16
PROMPT = 512  # tokens
OUTPUT = 1024  # tokens of the decode rows
SIZES = (1024, 16 * 1024, 256 * 1024)  # blocks of the rows that show how cost grows

Request = tuple[Sequence, SequenceGroup]
Workload = Callable[[], tuple[float, int]]  # one round: seconds, and how many operations they were for

_ids = itertools.count()


def _request(token_ids: list[int]) -> Request:
    seq = Sequence(next(_ids), token_ids, BLOCK_SIZE)
    return seq, SequenceGroup(str(seq.seq_id), [seq])


def _new_prompts(count: int) -> list[Request]:
    """Prompts that share no block with any other."""
    return [_request([1_000_000 + next(_ids), *range(PROMPT - 1)]) for _ in range(count)]


def _same_prompts(count: int) -> list[Request]:
    return [_request(list(range(PROMPT))) for _ in range(count)]


def _manager(num_gpu_blocks: int = 4096, *, caching: bool) -> BlockSpaceManager:
    return BlockSpaceManager(BLOCK_SIZE, num_gpu_blocks, 2048, enable_caching=caching)


def _running(manager: BlockSpaceManager, token_ids: list[int]) -> Request:
    seq, group = _request(token_ids)
    manager.allocate(group)
    seq.status = SequenceStatus.RUNNING
    return seq, group


def _serve(
    manager: BlockSpaceManager,
    prompts: Callable[[int], list[Request]],
    stamps: Iterator[float] | None,
    count: int = 64,
) -> tuple[float, int]:
    """Admit, allocate, stamp as the scheduler does where `stamps` is given, and free."""
    requests = prompts(count)
    start = time.perf_counter()
    for seq, group in requests:
        manager.can_allocate(group)
        manager.allocate(group)
        if stamps is not None:
            manager.access_all_blocks_in_seq(seq, next(stamps))
        manager.free(seq)
    return time.perf_counter() - start, count


def _full_of_freed(num_gpu_blocks: int, stamps: Callable[[], Iterator[float] | None]) -> Workload:
    """Misses in a pool in which every block is freed content, so that each miss evicts."""
    manager, clock = _manager(num_gpu_blocks, caching=True), stamps()
    _serve(manager, _new_prompts, clock, num_gpu_blocks * BLOCK_SIZE // PROMPT)
    return partial(_serve, manager, _new_prompts, clock)


def _allocate_uncached() -> Workload:
    return partial(_serve, _manager(caching=False), _new_prompts, None)


def _hit_live() -> Workload:
    manager = _manager(caching=True)
    _running(manager, list(range(PROMPT)))
    return partial(_serve, manager, _same_prompts, None)


def _hit_freed() -> Workload:
    return partial(_serve, _manager(caching=True), _same_prompts, None)


def _decode(caching: bool) -> tuple[float, int]:
    """A token and its slot, OUTPUT times; a fresh manager, so that nothing is ever evicted."""
    manager = _manager(caching=caching)
    seq, _ = _running(manager, list(range(PROMPT)))
    start = time.perf_counter()
    for token_id in range(OUTPUT):
        seq.append_token_id(token_id)
        manager.append_slots(seq)
    return time.perf_counter() - start, OUTPUT


def _can_append(num_groups: int, seqs_a_group: int) -> Workload:
    manager = _manager(caching=False)
    groups = []
    for _ in range(num_groups):
        seq, group = _running(manager, list(range(40)))
        for _ in range(seqs_a_group - 1):
            group.add(seq.fork(next(_ids)))
        groups.append(group)

    def ask() -> tuple[float, int]:
        start = time.perf_counter()
        for group in groups:
            manager.can_append_slots(group)
        return time.perf_counter() - start, 1

    return ask


def _swap() -> Workload:
    manager = _manager(caching=False)
    seq, group = _running(manager, list(range(64 * BLOCK_SIZE)))

    def out_and_in() -> tuple[float, int]:
        start = time.perf_counter()
        manager.swap_out(group)
        seq.status = SequenceStatus.SWAPPED
        manager.swap_in(group)
        seq.status = SequenceStatus.RUNNING
        return time.perf_counter() - start, 1

    return out_and_in


def _new_request() -> tuple[float, int]:
    start = time.perf_counter()
    _same_prompts(64)
    return time.perf_counter() - start, 64


ROWS: dict[str, Callable[[], Workload]] = {
    "new_request_512": lambda: _new_request,
    "alloc_free_512_uncached": _allocate_uncached,
    "alloc_free_512_cached_hit_live": _hit_live,
    "alloc_free_512_cached_hit_freed": _hit_freed,
    "alloc_free_512_cached_miss_evict": partial(_full_of_freed, 4096, partial(itertools.count, 1.0)),
    "alloc_free_512_cached_miss_evict_untouched": partial(_full_of_freed, 4096, lambda: None),
    **{
        f"alloc_free_512_evict_equal_stamps_{size // 1024}k_blocks": partial(
            _full_of_freed, size, partial(itertools.repeat, 1.0)
        )
        for size in SIZES
    },
    "append_token_and_slots_uncached": lambda: partial(_decode, False),
    "append_token_and_slots_cached": lambda: partial(_decode, True),
    "can_append_slots_group_of_256": partial(_can_append, 1, 256),
    "can_append_slots_256_groups": partial(_can_append, 256, 1),
    "swap_out_in_64_blocks": _swap,
}


def measure(name: str, seconds: float) -> float:
    """Microseconds for one operation of the row `name`: the median over rounds that take about `seconds` in all."""
    workload = ROWS[name]()
    workload()  # warm
    rounds: list[float] = []
    gc.collect()
    gc.disable()
    try:
        end = time.perf_counter() + seconds
        while not rounds or time.perf_counter() < end:
            spent, operations = workload()
            rounds.append(spent / operations * 1e6)
    finally:
        gc.enable()
    return statistics.median(rounds)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `bench manager`."""
    parser.add_argument("--rows", default="", metavar="TEXT", help="only rows whose name contains this")
    parser.add_argument("--seconds", type=float, default=0.5, help="for each row (default: 0.5)")
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(args: argparse.Namespace) -> int:
    """Measure and print. Returns the exit code: 2 when no row is left."""
    names = [name for name in ROWS if args.rows in name]
    if not names:
        print(f"bench: no row's name contains {args.rows!r}; there are {', '.join(ROWS)}")
        return 2
    figures = {}
    for name in names:
        figures[name] = round(measure(name, args.seconds), 3)
        if not args.json:
            print(f"{name:<46} {figures[name]:>12.3f} µs", flush=True)
    if args.json:
        print(json.dumps(figures, indent=2))
    return 0

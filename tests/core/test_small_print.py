"""Defaults, exact limits and exact words: what mutation testing found that no other test looked at."""

import random
from collections import deque

import pytest

from refimpl import (
    BlockSpaceManager,
    CacheConfig,
    CachedBlockAllocator,
    Device,
    LRUEvictor,
    PhysicalTokenBlock,
    Scheduler,
    SchedulerConfig,
    SchedulerOutputs,
    Sequence,
    SequenceGroup,
    SequenceStatus,
    UncachedBlockAllocator,
    num_required_blocks,
)
from tests.core.helpers import make_group, make_manager

CACHE = CacheConfig(block_size=4, num_gpu_blocks=16, num_cpu_blocks=16)


def make_scheduler(**limits):
    return Scheduler(
        SchedulerConfig(**({"max_model_len": 64} | limits)), CACHE, make_manager(num_gpu_blocks=16, num_cpu_blocks=17)
    )


def put(scheduler, queue, group):
    """A group that has been prefilled, as it stands in `running` or `swapped`."""
    scheduler.block_manager.allocate(group)
    for seq in group.seqs:
        seq.status = SequenceStatus.RUNNING
    if queue == "swapped":
        scheduler.block_manager.swap_out(group)
        for seq in group.seqs:
            seq.status = SequenceStatus.SWAPPED
    for seq in group.seqs:
        seq.append_token_id(7)
    getattr(scheduler, queue).append(group)


def reasons(outputs):
    return {decision.action: decision.reason for decision in outputs.decisions}


def test_blocks_of_one_token():
    assert num_required_blocks(3, block_size=1) == 3


def test_defaults():
    seq = Sequence(0, [1], block_size=4)
    assert seq.num_computed_tokens == 0
    assert SequenceGroup("r", [seq]).arrival_time == 0.0
    assert UncachedBlockAllocator(Device.GPU, block_size=4, num_blocks=1).block_size == 4
    assert CachedBlockAllocator(Device.GPU, block_size=4, num_blocks=1).allocate().num_hashed_tokens == 0


def test_token_0_is_a_token_and_the_bad_one_is_named():
    with pytest.raises(ValueError, match="position 1 is -1"):
        Sequence(0, [0, -1], block_size=4)


def test_an_infinite_watermark_is_refused():
    with pytest.raises(ValueError, match="watermark is inf"):
        BlockSpaceManager(4, 8, 8, watermark=float("inf"))


def test_refusals_begin_with_what_is_wrong():
    pool = UncachedBlockAllocator(Device.GPU, block_size=4, num_blocks=1)
    for call in (lambda: pool.contains_block(1), lambda: pool.update_hash(1, pool.free_blocks[0])):
        with pytest.raises(NotImplementedError, match="^an uncached allocator does not know contents; use Cached"):
            call()
    with pytest.raises(ValueError, match="^No usable cache memory left: 0 free blocks"):
        LRUEvictor().evict()


def test_the_evictor_knows_how_many_entries_it_keeps():
    evictor, rng, here = LRUEvictor(), random.Random(0), {}
    for number in range(2000):
        if here and rng.random() < 0.4:
            del here[evictor.evict().block_hash]
        elif here and rng.random() < 0.5:
            evictor.remove(here.popitem()[0])
        else:
            here[number] = PhysicalTokenBlock(Device.GPU, number, 4, block_hash=number)
            here[number].last_accessed = rng.randrange(9)
            evictor.add(here[number])
        assert evictor._num_entries == len(evictor._run) + sum(len(run) for _, run in evictor._other_runs)
        assert evictor.num_blocks == len(here)


@pytest.mark.parametrize(
    "outputs",
    [
        SchedulerOutputs(scheduled_seq_groups=["a"]),
        SchedulerOutputs(blocks_to_swap_in=[(0, 1)]),
        SchedulerOutputs(blocks_to_swap_out=[(0, 1)]),
        SchedulerOutputs(blocks_to_copy=[(0, 1)]),
    ],
)
def test_any_work_makes_a_step_that_is_not_empty(outputs):
    assert not outputs.is_empty()
    assert SchedulerOutputs().is_empty()


def test_a_scheduler_keeps_its_configuration_and_is_quiet(capsys):
    scheduler = make_scheduler()
    scheduler.add_seq_group(make_group(5))
    (metadata,), outputs = scheduler.schedule(now=0.0)
    assert scheduler.cache_config is CACHE
    assert metadata.seq_data == {0: outputs.scheduled_seq_groups[0].seq_group.seqs[0]}
    assert (len(outputs.decisions), capsys.readouterr().out) == (1, "")


def test_a_step_may_hold_more_tokens_than_one_sequence():
    scheduler = make_scheduler(max_model_len=16, max_num_batched_tokens=24, max_num_seqs=8)
    for seq_id, length in ((0, 12), (1, 12), (2, 1)):
        scheduler.add_seq_group(make_group(length, seq_ids=(seq_id,), request_id=str(seq_id)))
    _, outputs = scheduler.schedule(now=0.0)
    assert outputs.num_batched_tokens == 24
    assert [(d.request_id, d.action) for d in outputs.decisions] == [("0", "prefill"), ("1", "prefill"), ("2", "wait")]


def test_a_running_sequence_is_counted_once():
    scheduler = make_scheduler(max_num_seqs=2)
    put(scheduler, "running", make_group(4, seq_ids=(0,), request_id="runs"))
    put(scheduler, "swapped", make_group(4, seq_ids=(1,), request_id="comes back"))
    _, outputs = scheduler.schedule(now=0.0)
    assert [s.seq_group.request_id for s in outputs.scheduled_seq_groups] == ["runs", "comes back"]
    assert reasons(outputs) == {"swap in": "there is room again"}


def test_a_swapped_group_that_is_ended_does_not_hold_up_the_next():
    scheduler = make_scheduler()
    too_large, small = make_group(64, seq_ids=(0,), request_id="too large"), make_group(4, seq_ids=(1,), request_id="b")
    put(scheduler, "swapped", too_large)
    put(scheduler, "swapped", small)
    _, outputs = scheduler.schedule(now=0.0)
    assert outputs.ignored_seq_groups == [too_large]
    assert [s.seq_group for s in outputs.scheduled_seq_groups] == [small]
    assert reasons(outputs)["ignore"] == "it needs more blocks than the pool has above the watermark"


@pytest.mark.parametrize(
    ("mode", "num_cpu_blocks", "action", "reason"),
    [
        ("recompute", 0, "recompute", "no free block; its tokens are prefilled again later"),
        ("swap", 1, "swap out", "no free block; its blocks move to the CPU"),
        ("swap", 0, "abort", "no free block, and too little swap space to save it"),
    ],
)
def test_whoever_makes_room_is_told_how(mode, num_cpu_blocks, action, reason):
    manager = make_manager(num_gpu_blocks=1, num_cpu_blocks=num_cpu_blocks)
    scheduler = Scheduler(SchedulerConfig(max_model_len=64, preemption_mode=mode), CACHE, manager)
    put(scheduler, "running", make_group(4))
    _, outputs = scheduler.schedule(now=0.0)
    assert reasons(outputs) == {action: reason}


def test_speed_is_tokens_by_seconds_since_the_oldest_step_that_is_remembered():
    scheduler, group = make_scheduler(policy="longest-slowest"), make_group(18)
    assert scheduler._speed(group, now=8.0) == 0.0
    scheduler._progress["r"] = deque([(4.0, 10)])
    assert (scheduler._speed(group, now=4.0), scheduler._speed(group, now=8.0)) == (0.0, 2.0)
    scheduler._progress["r"] = deque([(4.0, 10), (6.0, 16)])
    assert scheduler._speed(group, now=8.0) == 2.0

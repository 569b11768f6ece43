"""A recorded step says what the live scheduler and manager were, and stays true when they go on."""

import copy
from dataclasses import FrozenInstanceError, asdict
from types import SimpleNamespace

import pytest

from refimpl import (
    BlockSpaceManager,
    CacheConfig,
    Device,
    SamplingParams,
    Scheduler,
    SchedulerConfig,
    Sequence,
    SequenceGroup,
)
from refimpl.simulation.recording import MemoryReader, Recorder
from tests.core.helpers import finish, work

BLOCK_SIZE = 4


class Run:
    """A scheduler with a recorder at its side; its worker makes up a token for every sequence that ran."""

    def __init__(self, num_gpu_blocks, num_cpu_blocks=0, *, watermark=0.0, caching=False, **limits):
        self.manager = BlockSpaceManager(BLOCK_SIZE, num_gpu_blocks, num_cpu_blocks, watermark, caching)
        config = SchedulerConfig(**{"max_model_len": 64, "max_num_seqs": 16} | limits)
        self.scheduler = Scheduler(config, CacheConfig(), self.manager)
        self.recorder = Recorder(self.scheduler)
        self.num_added = 0

    def add(self, request_id, prompt, n=1):
        tokens = range(100 * self.num_added, 100 * self.num_added + prompt) if isinstance(prompt, int) else prompt
        seq = Sequence(10 * self.num_added, tokens, BLOCK_SIZE)
        group = SequenceGroup(request_id, [seq], SamplingParams(n=n), arrival_time=float(self.num_added))
        self.scheduler.add_seq_group(group)
        self.num_added += 1
        return group

    def step(self):
        now = float(len(self.recorder.steps))
        _, outputs = self.scheduler.schedule(now)
        step = self.recorder.record(outputs, now)
        for entry in outputs.scheduled_seq_groups:
            work(self.scheduler, entry.seq_group)
        return step

    def steps_until(self, happened, most=40):
        """Step until a step has something in its field `happened`; that step."""
        for _ in range(most):
            step = self.step()
            if getattr(step, happened):
                return step
        raise AssertionError(f"{happened} did not happen in {most} steps")


def finish_all(run, group):
    for seq in group.get_unfinished_seqs():
        finish(run.scheduler, seq)


def numbers(pool, name):
    return [block.block_number for block in pool.tables[name]]


def test_a_prefill_and_a_decode_are_recorded_as_the_worker_meets_them():
    run = Run(num_gpu_blocks=100, num_cpu_blocks=2, watermark=0.05)
    run.add("a", 5)
    run.add("b", 3)
    first, second = run.step(), run.step()

    assert (first.number, first.now, first.kind, first.num_batched_tokens) == (1, 0.0, "prefill", 8)
    assert first.running == first.scheduled == ("a", "b")
    assert first.waiting == first.swapped == ()
    assert first.num_tokens == {"a": 5, "b": 3}
    assert first.gpu.tables.keys() == {"a", "b"}
    assert numbers(first.gpu, "a") == [99, 98]
    assert (first.gpu.device, first.gpu.num_blocks, first.gpu.num_free) == ("GPU", 100, 97)
    assert (first.cpu.device, first.cpu.num_blocks, first.cpu.num_free, first.cpu.tables) == ("CPU", 2, 2, {})
    assert (first.block_size, first.watermark_blocks) == (BLOCK_SIZE, 5)
    assert (second.number, second.now, second.kind, second.num_batched_tokens) == (2, 1.0, "decode", 2)
    assert second.num_tokens == {"a": 6, "b": 4}
    assert [line.split()[:2] for line in first.decisions] == [["prefill", "a"], ["prefill", "b"]]
    assert "gpu free" in first.decisions[0]


def test_who_waits_is_recorded_with_its_tokens_and_without_a_table():
    run = Run(num_gpu_blocks=3)
    run.add("a", 8)
    run.add("b", 8)
    step = run.step()
    assert step.waiting == ("b",)
    assert step.num_tokens == {"a": 8, "b": 8}
    assert "b" not in step.gpu.tables
    assert step.preempted == ()


def test_a_step_with_nothing_to_do_is_idle():
    assert Run(num_gpu_blocks=3).step().kind == "idle"


def test_a_recorded_step_stays_as_it_was_when_the_run_goes_on():
    run = Run(num_gpu_blocks=20)
    run.add("a", 5, n=2)
    step = run.step()
    before = copy.deepcopy(asdict(step))
    for _ in range(10):
        run.step()
    assert asdict(step) == before
    with pytest.raises(FrozenInstanceError):
        step.number = 7


def test_sequences_of_one_request_are_told_apart_and_share_their_blocks():
    run = Run(num_gpu_blocks=20)
    run.add("a", 8, n=2)
    run.add("b", 4)
    alone, together = run.step(), run.step()
    assert alone.num_tokens.keys() == {"a", "b"}
    assert together.num_tokens.keys() == {"a.0", "a.1", "b"}
    first, second = together.gpu.tables["a.0"], together.gpu.tables["a.1"]
    assert first[0] is second[0]
    assert first[0].ref_count == 2
    assert first[-1] is not second[-1]


def test_shared_blocks_of_a_recording_are_drawn_as_shared_not_as_wrong():
    """Two copies of one block would look like two blocks with one number."""
    draw = pytest.importorskip("refimpl.viz.draw", reason="pictures need matplotlib")
    run = Run(num_gpu_blocks=20)
    run.add("a", 8, n=2)
    run.step()
    state = run.step().gpu
    text = draw.pool(state.num_blocks, state.tables).describe()
    assert "Shared: " in text
    assert "Mismatch" not in text


def test_a_swap_out_and_the_way_back_are_recorded_in_the_steps_where_they_happen():
    run = Run(num_gpu_blocks=6, num_cpu_blocks=6, preemption_mode="swap")
    first, _ = run.add("a", 8), run.add("b", 8)
    out = run.steps_until("swapped_out")
    assert out.swapped_out == out.preempted == out.swapped == ("b",)
    assert out.recomputed == out.swapped_in == ()
    assert [gpu for gpu, _ in out.blocks_to_swap_out] == numbers(run.recorder.steps[-2].gpu, "b")
    assert [cpu for _, cpu in out.blocks_to_swap_out] == numbers(out.cpu, "b")
    assert "b" not in out.gpu.tables
    assert run.step().swapped_out == ()

    finish_all(run, first)
    back = run.steps_until("swapped_in")
    assert back.swapped_in == ("b",)
    assert back.preempted == back.swapped == ()
    assert numbers(back.gpu, "b")[: len(back.blocks_to_swap_in)] == [gpu for _, gpu in back.blocks_to_swap_in]
    assert back.cpu.tables == {}


def test_a_recompute_is_recorded_once():
    run = Run(num_gpu_blocks=6, preemption_mode="recompute")
    run.add("a", 8)
    run.add("b", 8)
    step = run.steps_until("recomputed")
    assert step.recomputed == step.preempted == step.waiting == ("b",)
    assert step.swapped_out == ()
    assert run.step().recomputed == ()


def test_requests_that_were_ended_are_recorded():
    run = Run(num_gpu_blocks=4, preemption_mode="swap")
    run.add("huge", 40)
    run.add("a", 6)
    run.add("b", 6)
    assert run.step().ignored == ("huge",)
    step = run.steps_until("aborted")
    assert step.aborted == ("b",)
    assert step.preempted == ()


def test_copies_on_write_are_recorded():
    run = Run(num_gpu_blocks=20)
    run.add("a", 6, n=2)
    run.step()
    step = run.step()
    ((source, destination),) = step.blocks_to_copy
    assert source in range(20)
    assert destination in [*numbers(step.gpu, "a.0"), *numbers(step.gpu, "a.1")]


def test_a_recorder_that_comes_late_does_not_invent_a_swap():
    run = Run(num_gpu_blocks=6, num_cpu_blocks=6, preemption_mode="swap")
    run.add("a", 8)
    run.add("b", 8)
    run.steps_until("swapped_out")
    run.recorder = Recorder(run.scheduler)
    step = run.step()
    assert (step.number, step.swapped, step.swapped_out) == (1, ("b",), ())


def test_a_free_block_that_keeps_its_content_is_cached_until_it_is_taken():
    run = Run(num_gpu_blocks=4, caching=True)
    group = run.add("a", 9)
    full = numbers(run.step().gpu, "a")[:2]
    finish_all(run, group)
    idle = run.step()
    assert idle.gpu.cached == tuple(full)
    assert idle.gpu.num_free == 4

    run.add("b", 8)
    taken = run.step()
    assert set(taken.gpu.cached) == set(full) - set(numbers(taken.gpu, "b"))


def test_without_prefix_caching_no_free_block_is_cached():
    run = Run(num_gpu_blocks=4)
    group = run.add("a", 9)
    run.step()
    finish_all(run, group)
    assert run.step().gpu.cached == ()


def test_a_sequence_that_no_queue_knows_goes_by_its_number():
    manager = BlockSpaceManager(BLOCK_SIZE, 8, 0)
    manager.allocate(SequenceGroup("stranger", [Sequence(7, range(4), BLOCK_SIZE)]))
    assert MemoryReader(manager).read(Device.GPU, {}).tables.keys() == {"seq 7"}


def test_a_learners_scheduler_and_manager_need_no_more_than_the_public_names():
    """Blocks without `computed`, an allocator that only counts, outputs without a log."""
    block = SimpleNamespace(block_number=1, device=Device.GPU, ref_count=1)
    allocator = SimpleNamespace(get_num_total_blocks=lambda: 3)
    manager = SimpleNamespace(
        block_tables={0: [block]},
        block_size=4,
        watermark_blocks=1,
        gpu_allocator=allocator,
        cpu_allocator=allocator,
        get_num_free_gpu_blocks=lambda: 2,
        get_num_free_cpu_blocks=lambda: 3,
    )
    group = SequenceGroup("a", [Sequence(0, [1, 2, 3], 4)])
    scheduler = SimpleNamespace(waiting=[], running=[group], swapped=[], block_manager=manager)
    outputs = SimpleNamespace(
        scheduled_seq_groups=[SimpleNamespace(seq_group=group)],
        num_prefill_groups=1,
        num_batched_tokens=3,
        blocks_to_swap_in=[],
        blocks_to_swap_out=[],
        blocks_to_copy=[],
        ignored_seq_groups=[],
    )
    recorder = Recorder(scheduler)
    step = recorder.record(outputs, now=0.5)
    assert (step.gpu.num_blocks, step.gpu.num_free, step.cpu.num_free) == (3, 2, 3)
    assert numbers(step.gpu, "a") == [1]
    assert step.aborted == step.gpu.cached == ()
    assert step.decisions == ("prefill a",)

    scheduler.running, scheduler.waiting = [], [group]
    outputs.num_prefill_groups, outputs.scheduled_seq_groups = 0, []
    assert recorder.record(outputs, now=1.0).decisions == ("recomputed a",)

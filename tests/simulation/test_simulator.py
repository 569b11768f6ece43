"""The simulated clock and what is counted: small histories worked out by hand, and what holds for any workload."""

import dataclasses
import math
import random
import sys
import tracemalloc
from collections import Counter

import pytest
from machines import cache_config, make_simulator, request

from refimpl import BlockSpaceManager, Scheduler, SchedulerConfig, SequenceStatus
from refimpl.simulation.cost_model import CostModel
from refimpl.simulation.workload import Lengths, Span, WorkloadRequest, chat, poisson, shared_system_prompt

PRICES = CostModel(1.0, 0.5, 0.25, 0.125, 0.0625, kv_bytes_per_token=2)


def test_three_requests_by_hand():
    simulator = make_simulator(8, cost_model=PRICES)
    result = simulator.run([request(0.0, 6, 3), request(0.0, 3, 1), request(10.0, 4, 2)])
    # Prompts of 6 and 3: 1 + 9/2 = 5.5 s, and the second request has all it wanted. Two decodes of the first at lengths
    # 7 and 8: 2.125 and 2.25 s, to 9.875. The third comes at 10: its prompt 3 s, its decode at length 5 1.875 s.
    assert (result.finished, result.steps, result.seconds, result.busy_seconds) == (3, 5, 14.875, 14.75)
    assert (result.prompt_tokens, result.generated_tokens) == (13, 6)
    assert result.tokens_per_second == 6 / 14.875
    assert result.requests_per_second == 3 / 14.875
    assert result.time_to_first_token_mean == pytest.approx((5.5 + 5.5 + 3) / 3)
    assert result.time_to_first_token_p50 == pytest.approx(5.5, rel=0.01)
    assert result.time_per_output_token_mean == pytest.approx(((9.875 - 5.5) / 2 + 1.875) / 2)
    assert result.mean_concurrency == (2 * 5.5 + 9.25) / 14.75
    assert (result.peak_concurrency, result.peak_running_seqs, result.peak_memory) == (2, 2, 3 / 8)
    # Slots times seconds. The first ends with 8 slots filled, the second with 3, the third with 5.
    used = 9 * 5.5 + 7 * 2.125 + 8 * 2.25 + 4 * 3 + 5 * 1.875
    reserved = 2 * 5.5 + 1 * 2.125
    internal = 1 * 5.5 + 3 * 1.875
    whole = used + reserved + internal
    assert whole == 12 * 5.5 + 8 * 2.125 + 8 * 2.25 + 4 * 3 + 8 * 1.875
    assert dataclasses.astuple(result.memory) == (used / whole, reserved / whole, internal / whole, 0, 0)
    pool = 32 * 14.75
    assert dataclasses.astuple(result.pool) == pytest.approx(
        (used / pool, reserved / pool, internal / pool, 0, 1 - whole / pool)
    )


def test_branches_share_what_they_share_and_count_it_once():
    result = make_simulator(8).run([request(0.0, 5, 3, n=2)])
    # Prompt: 2 blocks, 5 tokens, 7 at the end. Then one block is shared and each has a last block of its own.
    assert (result.steps, result.generated_tokens, result.peak_running_seqs, result.peak_concurrency) == (3, 6, 2, 1)
    used, reserved, internal = 5 + (4 + 2 + 2) + (4 + 3 + 3), 2 + (1 + 1) + 0, 1 + (1 + 1) + (1 + 1)
    assert used + reserved + internal == 8 + 12 + 12
    assert dataclasses.astuple(result.memory)[:3] == (used / 32, reserved / 32, internal / 32)


def test_a_request_that_waits_for_its_turn_is_still_where_it_was():
    """A prompt comes between two decodes: the running request's newest token has no slot in that step."""
    result = make_simulator(8).run([request(0.0, 4, 2), request(0.5, 4, 1)])
    # Step 1: 4 used. Step 2: 4 and 4 used; the first has 5 tokens and one block. Step 3: 5 used, 3 never.
    assert result.steps == 3
    assert dataclasses.astuple(result.memory)[:3] == (17 / 20, 0, 3 / 20)


def test_a_cached_prefix_is_not_computed_again():
    prompt, longer = [(1, 9)], [(1, 9), (2, 7)]
    workload = [request(0.0, prompt, 1), request(50.0, prompt, 1), request(100.0, longer, 1)]
    without = make_simulator(16, cost_model=PRICES).run(workload)
    cached = make_simulator(16, cost_model=PRICES, caching=True).run(workload)
    assert (without.cached_prompt_tokens, without.prompt_tokens, without.hit_rate) == (0, 34, 0)
    # 2 full blocks of the second prompt's 3, and of the third's 4.
    assert (cached.cached_prompt_tokens, cached.prompt_tokens, cached.hit_rate) == (16, 34, 16 / 34)
    assert (cached.cached_prompt_blocks, cached.prompt_blocks, cached.block_hit_rate) == (4, 10, 0.4)
    assert without.busy_seconds - cached.busy_seconds == 16 * 0.5


def test_equal_prompts_of_one_step_are_computed_once():
    workload = [request(0.0, [(1, 9)], 1), request(0.0, [(1, 9)], 1)]
    result = make_simulator(16, cost_model=PRICES, caching=True).run(workload)
    assert result.steps == 1
    assert result.cached_prompt_tokens == 8
    assert result.seconds == 1 + (9 + 1) * 0.5


def test_the_last_block_of_a_prompt_is_always_computed():
    workload = [request(0.0, [(1, 8)], 1), request(0.0, [(1, 8)], 1), request(9.0, [(1, 8)], 1)]
    assert make_simulator(16, caching=True).run(workload).cached_prompt_tokens == 4 + 4


def test_the_attention_of_a_prompt_is_paid_for_behind_what_is_cached():
    model = CostModel(1.0, 0.0, 0.0, 0.0, 0.0, kv_bytes_per_token=1, seconds_per_prefill_pair=0.5)
    workload = [request(0.0, [(1, 6)], 1), request(50.0, [(1, 6)], 1)]
    result = make_simulator(16, cost_model=model, caching=True).run(workload)
    assert result.busy_seconds == (1 + 0.5 * (1 + 2 + 3 + 4 + 5 + 6)) + (1 + 0.5 * (5 + 6))


def test_a_chat_turn_hits_the_answer_before_it():
    first = request(0.0, [(1, 6)], 7, answer=2)
    second = request(100.0, [(1, 6), (2, 7), (3, 5)], 1)
    result = make_simulator(16, caching=True).run([first, second])
    assert result.cached_prompt_tokens == 12  # of the 12 tokens whose keys and values the first turn has left
    unnamed = dataclasses.replace(first, answer=None)
    assert make_simulator(16, caching=True).run([unnamed, second]).cached_prompt_tokens == 4


def test_branches_do_not_generate_the_same_tokens():
    """Else prefix caching would merge them: 3 branches of 1 + 2 blocks."""
    seen = []
    simulator = make_simulator(16, caching=True)
    simulator.run(
        [request(0.0, 4, 9, n=3, answer=5)],
        on_step=lambda scheduler, outputs, now: seen.append(16 - scheduler.block_manager.get_num_free_gpu_blocks()),
    )
    assert max(seen) == 1 + 3 * 2


def test_swapped_bytes_are_counted_and_take_time():
    simulator = make_simulator(4, num_cpu_blocks=4, preemption_mode="swap", cost_model=PRICES)
    result = simulator.run([request(0.0, 8, 3), request(0.0, 8, 3)])
    # Both prompts fill the pool. The first decode needs a block: the second request's 2 blocks move out, and come back
    # when the first has ended. A block is 4 tokens of 2 bytes.
    assert (result.preemptions_swap, result.preemptions_recompute) == (1, 0)
    assert (result.bytes_swapped_out, result.bytes_swapped_in) == (16, 16)
    prompts, decodes = 1 + 16 * 0.5, 4 * (1 + 0.25) + 2 * (9 + 10) * 0.125
    assert result.seconds == prompts + decodes + 32 * 0.0625


def test_what_was_dropped_is_computed_again_and_counts_as_a_prompt_once():
    simulator = make_simulator(4, cost_model=PRICES)
    result = simulator.run([request(0.0, 8, 3), request(0.0, 8, 3)])
    assert (result.preemptions_swap, result.preemptions_recompute) == (0, 1)
    assert (result.prompt_tokens, result.generated_tokens) == (16, 6)
    # The second prefill of 9 tokens makes a token, too.
    prompts, decodes = 2 + (16 + 9) * 0.5, 3 * (1 + 0.25) + (9 + 10 + 10) * 0.125
    assert result.seconds == prompts + decodes


def test_a_preempted_request_got_its_first_token_once():
    result = make_simulator(4).run([request(0.0, 8, 3), request(0.0, 8, 3)])
    assert result.time_to_first_token_mean == 1.0
    assert result.time_per_output_token_mean == (1.0 + 2.0) / 2  # 2 seconds for 2 tokens, and 4


def test_a_request_that_has_to_make_room_for_itself():
    """Its last block has room; the block manager wants a free block nevertheless, and there is none."""
    result = make_simulator(4).run([request(0.0, 14, 2)])
    assert (result.finished, result.preemptions_recompute, result.steps) == (1, 1, 2)
    outgrown = make_simulator(4).run([request(0.0, 16, 3)])
    assert (outgrown.finished, outgrown.ignored, outgrown.preemptions_recompute) == (0, 1, 1)


def test_the_clock_jumps_to_the_next_arrival_and_starts_with_the_first():
    result = make_simulator(4).run([request(1000.0, 1, 1), request(2000.0, 1, 1)])
    assert (result.steps, result.busy_seconds, result.seconds) == (2, 2, 1001)


def test_who_arrives_during_a_step_waits_for_its_end():
    times = []
    make_simulator(8).run(
        [request(0.0, 1, 2), request(0.25, 1, 1), request(1.0, 1, 1)],
        on_step=lambda scheduler, outputs, now: times.append((now, outputs.num_prefill_groups)),
    )
    assert times == [(0.0, 1), (1.0, 2), (2.0, 0)]


def test_on_step_sees_what_the_worker_sees():
    seen = []

    def look(scheduler, outputs, now):
        (scheduled,) = outputs.scheduled_seq_groups
        (seq,) = scheduled.seq_group.get_seqs(SequenceStatus.RUNNING)
        seen.append((now, seq.get_len(), len(scheduler.block_manager.block_tables[seq.seq_id])))

    make_simulator(8).run([request(0.0, 3, 3)], on_step=look)
    assert seen == [(0.0, 3, 1), (1.0, 4, 1), (2.0, 5, 2)]


def test_a_request_that_can_never_run_is_ignored_and_the_others_run():
    too_long, too_big = request(0.0, 65, 1), request(0.0, 40, 1)
    result = make_simulator(8).run([too_long, request(0.0, 3, 2), too_big, request(9.0, 3, 1)])
    assert (result.ignored, result.finished, result.refused) == (2, 2, 0)
    assert result.generated_tokens == 3


def test_nothing_but_requests_that_can_never_run():
    result = make_simulator(8).run([request(0.0, 65, 1), request(5.0, 65, 1)])
    assert (result.ignored, result.finished, result.steps) == (2, 0, 0)
    assert math.isnan(result.time_to_first_token_mean)


def test_a_request_for_too_many_sequences_is_counted_with_the_reason():
    simulator = make_simulator(8, max_num_seqs=4)
    result = simulator.run([request(0.0, 3, 1, n=5), request(0.0, 3, 1, n=4), request(1.0, 3, 1, n=5)])
    assert (result.refused, result.finished) == (2, 1)
    assert result.refusals == {"asks for 5 sequences, max_num_seqs is 4": 2}


def test_max_model_len_cuts_outputs_short_as_in_the_engine():
    result = make_simulator(32, max_model_len=16).run([request(0.0, 10, 20), request(0.0, 16, 3), request(0.0, 10, 6)])
    assert (result.finished, result.length_capped) == (3, 2)
    assert result.generated_tokens == 6 + 1 + 6


def test_a_group_that_cannot_be_saved_is_aborted():
    simulator = make_simulator(4, num_cpu_blocks=1, preemption_mode="swap")
    result = simulator.run([request(0.0, 8, 3), request(0.0, 8, 3)])
    assert (result.aborted, result.finished, result.preemptions) == (1, 1, 0)
    assert result.generated_tokens == 3 + 1
    assert result.tokens_per_second * result.seconds == pytest.approx(3)  # what was thrown away does not count


def test_no_requests_at_all():
    result = make_simulator(4).run([])
    assert (result.finished, result.steps, result.seconds, result.hit_rate, result.tokens_per_second) == (0, 0, 0, 0, 0)


def test_requests_out_of_order_are_refused():
    with pytest.raises(ValueError, match=r"request 1 arrives at 1.0 s, the one before it at 2.0 s"):
        make_simulator(8).run([request(2.0, 3, 1), request(1.0, 3, 1)])


def test_pools_have_to_be_known_and_empty_and_of_the_size_that_was_said():
    scheduler = Scheduler(SchedulerConfig(max_model_len=64), cache_config(8))
    with pytest.raises(ValueError, match="num_gpu_blocks"):
        make_simulator(None)
    with pytest.raises(ValueError, match="7 GPU blocks are free, a run starts with all 8"):
        make_simulator(8, manager=BlockSpaceManager(4, 7, 0)).run([])
    with pytest.raises(ValueError, match="3 CPU blocks are free, a run starts with all 0"):
        make_simulator(8, manager=BlockSpaceManager(4, 8, 3)).run([])
    with pytest.raises(ValueError, match="blocks hold 8 tokens, cache_config says 4"):
        make_simulator(8, manager=BlockSpaceManager(8, 8, 0))
    with pytest.raises(ValueError, match="give one of the three"):
        make_simulator(8, manager=BlockSpaceManager(4, 8, 0), scheduler=scheduler)


def test_a_scheduler_of_ones_own_is_driven():
    class Counting(Scheduler):
        num_calls = 0

        def schedule(self, now=None):
            self.num_calls += 1
            return super().schedule(now)

    scheduler = Counting(SchedulerConfig(max_model_len=64), cache_config(8))
    simulator = make_simulator(8, scheduler=scheduler)
    assert simulator.run([request(0.0, 3, 2)]).steps == scheduler.num_calls == 2
    assert simulator.run([request(0.0, 3, 2)]).steps == 2  # it was left as it was found


def test_a_manager_that_leaks_is_found_out():
    class Leaky(BlockSpaceManager):
        def free(self, seq):
            self.block_tables.pop(seq.seq_id, None)

    with pytest.raises(RuntimeError, match="blocks were not given back: 6 GPU blocks are free"):
        make_simulator(8, manager=Leaky(4, 8, 0)).run([request(0.0, 5, 3)])


def test_a_scheduler_that_gets_nowhere_is_stopped():
    class Idle(Scheduler):
        def _schedule_prefills(self, budget, outputs):
            pass

    simulator = make_simulator(8, scheduler=Idle(SchedulerConfig(max_model_len=64), cache_config(8)))
    with pytest.raises(RuntimeError, match="2 requests have not ended, and the scheduler schedules none of them"):
        simulator.run([request(0.0, 5, 3), request(4.0, 5, 3)])


def test_a_bar_is_shown_for_long_work_when_it_is_asked_for(capsys, monkeypatch):
    pytest.importorskip("tqdm", reason="the bar is tqdm's")
    make_simulator(8).run([request(0.0, 3, 1)] * 3, progress=True)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("refimpl.simulation.simulator._BAR_DELAY", 0.0)
    make_simulator(8).run([request(0.0, 3, 1)] * 3)
    assert capsys.readouterr().err == ""
    make_simulator(8).run([request(0.0, 3, 1)] * 3, progress=True)
    assert "3 requests" in capsys.readouterr().err


def random_workload(seed):
    """Requests of all kinds: shared beginnings, branches, some too long, in bursts."""
    chance, now = random.Random(seed), 0.0
    for index in range(150):
        now += chance.choice([0.0, 0.0, 1.0, 6.0])
        spans = [Span(chance.randrange(2), chance.randint(1, 12))] if chance.random() < 0.5 else []
        spans.append(Span(100 + index if chance.random() < 0.7 else 7, chance.choice([1, 3, 8, 21, 21, 70])))
        yield WorkloadRequest(now, tuple(spans), chance.randint(1, 25), chance.choice([1, 1, 1, 2, 5]), index + 10_000)


def slots_by_definition(scheduler, outputs, requests):
    """Slots by what they are, from the tables alone: each block looked at, and who holds it."""
    scheduled = {id(item.seq_group) for item in outputs.scheduled_seq_groups}
    filled, wanted = Counter(), Counter()
    for group in scheduler.running:
        for seq in group.get_seqs(SequenceStatus.RUNNING):
            num_filled = seq.get_len() - (id(group) not in scheduled)
            last = seq.get_prompt_len() + min(requests[int(group.request_id)].output_len, 64 - seq.get_prompt_len()) - 1
            for i, block in enumerate(scheduler.block_manager.block_tables[seq.seq_id]):
                filled[block] = max(filled[block], min(4, num_filled - 4 * i))
                wanted[block] = max(wanted[block], min(4, max(last, num_filled) - 4 * i))
    return sum(filled.values()), sum(wanted.values()) - sum(filled.values()), 4 * len(filled) - sum(wanted.values())


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("caching", [False, True], ids=["plain", "caching"])
@pytest.mark.parametrize("mode", ["recompute", "swap"])
def test_what_holds_for_any_workload(seed, caching, mode):
    requests = list(random_workload(seed))
    totals, blocks_moved, steps = Counter(), Counter(), []

    def look(scheduler, outputs, now):
        manager = scheduler.block_manager
        blocks_moved["out"] += len(outputs.blocks_to_swap_out)
        blocks_moved["in"] += len(outputs.blocks_to_swap_in)
        if outputs.is_empty():
            return
        steps.append(now)
        assert 0 <= manager.get_num_free_gpu_blocks() <= 24
        slots = slots_by_definition(scheduler, outputs, requests)
        totals.update(dict(zip(("used", "reserved", "internal"), slots, strict=True)))

    simulator = make_simulator(24, num_cpu_blocks=30, caching=caching, preemption_mode=mode, max_num_seqs=4)
    result = simulator.run(iter(requests), on_step=look)
    assert result == simulator.run(iter(requests))
    assert result.finished + result.ignored + result.aborted + result.refused == len(requests)
    assert result.refused == sum(request.n > 4 for request in requests) > 0
    assert result.ignored > 0
    assert result.preemptions > 0
    assert (result.bytes_swapped_out, result.bytes_swapped_in) == (blocks_moved["out"] * 40, blocks_moved["in"] * 40)
    assert result.peak_memory <= 1
    assert result.peak_concurrency <= result.peak_running_seqs <= 4
    assert result.steps == result.busy_seconds == len(steps)
    assert sum(dataclasses.astuple(result.pool)) == pytest.approx(1)
    assert sum(dataclasses.astuple(result.memory)) == pytest.approx(1)
    assert 0 <= result.hit_rate <= 1
    whole = sum(totals.values())
    for name, count in totals.items():
        assert getattr(result.memory, name) == pytest.approx(count / whole, abs=1e-9)


@pytest.mark.parametrize("caching", [False, True])
def test_every_token_asked_for_is_generated(caching):
    """With swap space for all, nothing is lost: tokens are those of the requests that could run."""
    requests = [r for r in random_workload(3) if r.n <= 4 and r.prompt_len + r.output_len <= 64]
    result = make_simulator(48, num_cpu_blocks=500, caching=caching, max_num_seqs=8).run(requests)
    assert (result.finished, result.length_capped) == (len(requests), 0)
    assert result.generated_tokens == sum(r.output_len * r.n for r in requests)
    assert result.prompt_tokens == sum(r.prompt_len for r in requests)
    assert result.preemptions > 0


def small_requests(count):
    return poisson(count, 0.2, prompt=Lengths(3), output=Lengths(2))


def shared_requests(count):
    return shared_system_prompt(count, 0.2, system_tokens=9, user=Lengths(3), output=Lengths(2))


def conversations(count):
    return chat(count // 2, 0.1, turns=2, think_time=3.0, user=Lengths(3), output=Lengths(2))


@pytest.mark.parametrize("caching", [False, True], ids=["plain", "caching"])
@pytest.mark.parametrize("workload", [small_requests, shared_requests, conversations])
def test_memory_does_not_grow_with_the_requests_that_have_ended(workload, caching):
    peaks = [0] * 4  # bytes in use at most, while each quarter of the steps was taken
    num_requests = 6000
    num_steps = make_simulator(64, caching=caching).run(workload(num_requests)).steps
    taken = 0

    def look(scheduler, outputs, now):
        nonlocal taken
        quarter = 4 * taken // num_steps
        peaks[quarter] = max(peaks[quarter], tracemalloc.get_traced_memory()[0])
        taken += 1

    simulator = make_simulator(64, caching=caching)
    tracemalloc.start()
    try:
        result = simulator.run(workload(num_requests), on_step=look)
    finally:
        tracemalloc.stop()
    assert result.finished == num_requests
    # An entry of a list takes 8 bytes; a request more that happens to wait at the peak takes a few hundred, once.
    assert peaks[3] - max(peaks[1:3]) < 4 * num_requests / 4


@pytest.mark.parametrize("caching", [False, True], ids=["plain", "caching"])
def test_a_step_does_not_cost_more_when_many_requests_have_ended(caching):
    def calls_a_step(count):
        num_calls = 0

        def note(frame, event, argument):
            nonlocal num_calls
            num_calls += event in ("call", "c_call")

        simulator = make_simulator(64, caching=caching)
        sys.setprofile(note)
        try:
            result = simulator.run(small_requests(count))
        finally:
            sys.setprofile(None)
        return num_calls / result.steps

    assert calls_a_step(4000) == pytest.approx(calls_a_step(1000), rel=0.05)

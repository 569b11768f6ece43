"""What a person on call works out agrees with what the scheduler, the block manager and the simulator do."""

import copy
import math
import random
from collections import Counter

import pytest

from refimpl import PrefixKeys, Scheduler, SchedulerConfig, Sequence, SequenceGroup, SequenceStatus
from refimpl.block import internal_fragmentation, num_required_blocks
from refimpl.config import CacheConfig
from refimpl.prefix_hash import NO_PREFIX
from refimpl.scheduler import Decision
from refimpl.simulation.cost_model import GPU_OPT_13B_A100
from refimpl.simulation.diagnosis import BlockIndex, BlockSizes, DecisionLog, LongestSlowest, num_prefill_tokens
from refimpl.simulation.experiments import SUMMARIES, chats, four_answers, squeeze
from refimpl.simulation.simulator import Simulator


def decision(request_id, action, reason=""):
    return Decision(request_id, action, reason, 0, 0, 0, 0, 0, 0)


def log_of(*steps):
    """Steps such as "prefill a 35, recompute b"; "" for one without a decision."""
    return DecisionLog([[as_decision(words) for words in step.split(", ") if words] for step in steps])


def as_decision(words):
    *action, request_id = words.rstrip(" 0123456789").split()
    number = words.split()[-1]
    return decision(request_id, " ".join(action), f"{number} tokens" if number.isdigit() else "no free block")


def test_a_stay_is_short_up_to_the_limit_and_not_beyond():
    log = log_of("swap in a", "", "", "swap out a")
    assert log.short_stays(within=3) == {"a": 1}
    assert log.short_stays(within=2) == {}


def test_every_kind_of_stay_counts_and_one_that_began_before_the_log_does_not():
    log = log_of("recompute b, swap in a", "swap out a", "prefill b 20, swap in a", "recompute b, swap out a")
    assert log.short_stays(within=1) == {"a": 2, "b": 1}


def test_the_first_prefill_is_no_lost_work_and_the_newest_token_of_a_later_one_is_not():
    assert log_of("prefill a 35").recomputed_tokens() == 0
    assert log_of("prefill a 35", "recompute a", "prefill a 36").recomputed_tokens() == 35
    assert log_of("recompute a", "prefill a 36", "swap out a", "swap in a", "recompute a").recomputed_tokens() == 35


def test_an_absence_lasts_until_the_request_comes_in_or_is_ended_or_the_log_is_over():
    log = log_of("swap out a, recompute b, swap out c", "swap in a", "ignore b", "swap out a", "", "")
    assert log.longest_absences() == {"a": 3, "b": 2, "c": 6}


def test_reading_changes_nothing():
    log = log_of("prefill a 35", "recompute a, wait a", "prefill a 36")
    before = copy.deepcopy(log.steps)
    assert (log.short_stays(9), log.recomputed_tokens(), log.longest_absences()) == ({"a": 1}, 35, {"a": 1})
    assert log.steps == before


@pytest.mark.parametrize(("workload", "num_gpu_blocks"), [(chats(), 300), (SUMMARIES, 300)], ids=["chats", "summaries"])
def test_what_is_computed_again_is_what_was_dropped(workload, num_gpu_blocks):
    """Counted where it is dropped: every token of the victim but the newest."""
    log, dropped = DecisionLog(), []

    def look(scheduler, outputs, now):
        log(scheduler, outputs, now)
        waiting = {group.request_id: group for group in scheduler.waiting}
        gone = [d.request_id for d in outputs.decisions if d.action == "recompute"]
        dropped.extend(seq.get_len() - 1 for name in gone for seq in waiting[name].get_unfinished_seqs())

    result = squeeze(workload, num_gpu_blocks, on_step=look)
    assert result.preemptions == len(dropped) > 5
    assert log.recomputed_tokens() == sum(dropped)
    assert len(log.steps) == result.steps


def test_short_stays_and_absences_of_a_run_are_those_of_its_queues():
    log, away, longest = DecisionLog(), Counter(), Counter()

    def look(scheduler, outputs, now):
        log(scheduler, outputs, now)
        swapped = [group.request_id for group in scheduler.swapped]
        for name in set(away) - set(swapped):
            del away[name]
        away.update(swapped)
        longest.update({name: away[name] - longest[name] for name in swapped if away[name] > longest[name]})

    result = squeeze(four_answers(), 600, on_step=look)
    assert log.longest_absences() == dict(longest)
    assert sum(log.short_stays(within=10**9).values()) == result.preemptions > 20
    assert 0 < sum(log.short_stays(within=40).values()) < result.preemptions


def test_the_number_of_a_prefills_tokens_is_that_of_the_scheduler():
    scheduler = Scheduler(SchedulerConfig(max_model_len=64), CacheConfig(4, num_gpu_blocks=16, num_cpu_blocks=0))
    scheduler.add_seq_group(SequenceGroup("a", [Sequence(0, [7] * 35, 4)]))
    _, outputs = scheduler.schedule(now=0.0)
    assert [num_prefill_tokens(found) for found in outputs.decisions] == [outputs.num_batched_tokens] == [35]


class Doubting(Scheduler):
    """The scheduler, and a LongestSlowest that is asked beside it."""

    def __init__(self, *args):
        super().__init__(*args)
        self.policy, self.chosen = LongestSlowest(), []

    def _note_progress(self, seq_group, now):
        super()._note_progress(seq_group, now)
        self.policy.note(seq_group, now)

    def _take_victim(self, queue, now):
        wanted = self.policy.choose(queue, now)
        victim = super()._take_victim(queue, now)
        assert victim is wanted
        self.chosen.append(victim.request_id)
        return victim


@pytest.mark.parametrize(("workload", "num_gpu_blocks"), [(chats(), 300), (four_answers(), 400)], ids=["one", "four"])
def test_the_chosen_victim_is_the_schedulers(workload, num_gpu_blocks):
    cache_config = CacheConfig(num_gpu_blocks=num_gpu_blocks, num_cpu_blocks=20 * num_gpu_blocks)
    config = SchedulerConfig(max_model_len=2048, policy="longest-slowest")
    scheduler = Doubting(config, cache_config)
    Simulator(cache_config, config, GPU_OPT_13B_A100, scheduler=scheduler).run(workload)
    assert len(set(scheduler.chosen)) > 5


def group(request_id, *lengths):
    seqs = [Sequence(f"{request_id}{i}", [7] * length, 4) for i, length in enumerate(lengths)]
    for seq in seqs:
        seq.status = SequenceStatus.RUNNING
    return SequenceGroup(request_id, seqs)


def test_the_slower_of_two_equally_long_groups_goes_and_of_two_alike_the_first():
    policy, fast, slow = LongestSlowest(), group("fast", 6), group("slow", 8)
    for one in (fast, slow):
        policy.note(one, now=1.0)
    fast.seqs[0].append_token_id(7)
    fast.seqs[0].append_token_id(7)
    assert (policy.speed(fast, 2.0), policy.speed(slow, 2.0), policy.speed(fast, 1.0)) == (2.0, 0.0, 0.0)
    assert policy.choose([fast, slow], 2.0) is slow
    assert policy.choose([group("one", 8), slow], 2.0).request_id == "one"


def test_finished_sequences_hold_no_tokens_that_count():
    several = group("several", 5, 9)
    several.seqs[1].status = SequenceStatus.FINISHED_STOPPED
    assert LongestSlowest().total_len(several) == 5


@pytest.mark.parametrize("seed", range(20))
def test_the_cost_of_a_block_size_is_the_waste_of_each_sequence_and_its_blocks(seed):
    rng = random.Random(seed)
    lengths = [rng.randint(1, 300) for _ in range(rng.randint(1, 20))]
    candidates = rng.sample((1, 4, 8, 16, 32, 64, 128), 5)
    sizes = BlockSizes(lengths, slot_bytes=rng.randint(1, 99), block_bytes=rng.randint(0, 999))
    for size in candidates:
        waste = internal_fragmentation(lengths, size)
        num_blocks = sum(num_required_blocks(length, size) for length in lengths)
        assert sizes.cost(size) == waste * sizes.slot_bytes + num_blocks * sizes.block_bytes
    picked = sizes.pick(candidates)
    assert all(sizes.cost(picked) <= sizes.cost(size) for size in candidates)


def test_of_two_sizes_that_cost_the_same_the_larger_is_picked():
    sizes = BlockSizes([16], slot_bytes=1, block_bytes=0)
    assert sizes.pick([4, 16, 8]) == 16
    with pytest.raises(ValueError):
        sizes.pick([])


@pytest.mark.parametrize("num_hashes", [1, 3, 2**64])
def test_an_index_with_any_hash_finds_what_the_prefix_keys_tell_apart(num_hashes):
    rng = random.Random(num_hashes)
    index, keys = BlockIndex(lambda prefix, token_ids: hash((prefix, token_ids)) % num_hashes), PrefixKeys()
    key_of = {None: NO_PREFIX}  # block -> its key
    for _ in range(300):
        prefix = rng.choice(list(key_of))
        token_ids = tuple(rng.randint(0, 2) for _ in range(2))
        key = keys.key(key_of[prefix], token_ids)
        found = index.find(prefix, token_ids)
        assert (found is None) == (key not in key_of.values())
        if found is None:
            found = len(key_of)
            index.add(prefix, token_ids, found)
            key_of[found] = key
        assert key_of[found] == key
    assert len(key_of) > 100


def test_there_are_runs_in_which_nobody_is_sent_away():
    log = DecisionLog()
    assert squeeze(chats(), 4000, on_step=log).preemptions == 0
    assert (log.short_stays(math.inf), log.recomputed_tokens(), log.longest_absences()) == ({}, 0, {})

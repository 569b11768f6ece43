"""The three phases of a step: who is admitted, who grows, who makes room, who comes back, who is ended."""

import pytest

from refimpl import (
    AllocStatus,
    BlockSpaceManager,
    CacheConfig,
    SamplingParams,
    Scheduler,
    SchedulerConfig,
    SchedulingBudget,
    Sequence,
    SequenceGroup,
    SequenceStatus,
)
from tests.core.helpers import assert_books_balance, finish, work


class Engine:
    """A scheduler whose worker makes up one token for every sequence that ran.

    A request of several candidates is forked after its prompt; the clock goes by one a step.
    """

    def __init__(
        self, num_gpu_blocks, num_cpu_blocks=0, *, watermark=0.0, caching=False, log_decisions=False, **limits
    ):
        limits = {"max_model_len": 64, "max_num_seqs": 16} | limits
        self.manager = BlockSpaceManager(4, num_gpu_blocks, num_cpu_blocks, watermark, caching)
        self.scheduler = Scheduler(SchedulerConfig(**limits), CacheConfig(), self.manager, log_decisions=log_decisions)
        self.groups, self.lengths = {}, {}  # request_id -> group; request_id -> output length at which it ends
        self.num_added = 0
        self.now = 0.0
        self.metadata = {}  # request_id -> what the worker was told in the last step

    def add(self, request_id, prompt, output_len=99, n=1):
        """Queue a request over `prompt`, tokens or their number, that is to have `output_len` tokens of output."""
        tokens = range(100 * self.num_added, 100 * self.num_added + prompt) if isinstance(prompt, int) else prompt
        seq = Sequence(10 * self.num_added, tokens, 4)
        group = SequenceGroup(request_id, [seq], SamplingParams(n=n), arrival_time=float(self.num_added))
        self.scheduler.add_seq_group(group)
        self.groups[request_id], self.lengths[request_id] = group, output_len
        self.num_added += 1
        return group

    def step(self):
        metadata, outputs = self.scheduler.schedule(self.now)
        self.metadata = {m.request_id: m for m in metadata}
        self.now += 1.0
        for scheduled in outputs.scheduled_seq_groups:
            group = scheduled.seq_group
            for seq in work(self.scheduler, group):
                if seq.get_output_len() >= self.lengths[group.request_id]:
                    finish(self.scheduler, seq)
        self.scheduler.free_finished_seq_groups()
        assert_books_balance(self.manager)
        return outputs

    def fill(self, num_free=0):
        """A stranger takes all free GPU blocks but `num_free`."""
        num_tokens = 4 * (self.manager.get_num_free_gpu_blocks() - num_free)
        self.stranger = Sequence(9999, range(7000, 7000 + num_tokens), 4)
        self.manager.allocate(SequenceGroup("stranger", [self.stranger]))

    def empty(self):
        """The stranger goes."""
        self.manager.free(self.stranger)

    def steps(self, number):
        return [self.step() for _ in range(number)]

    def run_to_the_end(self, most_steps=200):
        """All steps until nothing is left to do; their number is bounded."""
        all_outputs = []
        while self.scheduler.has_unfinished_seqs():
            assert len(all_outputs) < most_steps, f"still waiting: {self.queues()}"
            all_outputs.append(self.step())
        assert (self.manager.get_num_free_gpu_blocks(), self.manager.get_num_free_cpu_blocks()) == (
            self.manager.num_total_gpu_blocks,
            self.manager.num_total_cpu_blocks,
        )
        assert self.manager.block_tables == {}
        return all_outputs

    def queues(self):
        """Request ids in `waiting`, `running`, `swapped`."""
        queues = self.scheduler.waiting, self.scheduler.running, self.scheduler.swapped
        return tuple([group.request_id for group in queue] for queue in queues)


def ran(outputs):
    return [(scheduled.seq_group.request_id, scheduled.token_chunk_size) for scheduled in outputs.scheduled_seq_groups]


def ids(groups):
    return [group.request_id for group in groups]


def actions(outputs):
    return [(decision.action, decision.request_id) for decision in outputs.decisions]


def statuses(group):
    return [seq.status for seq in group.seqs]


# Prefill.


def test_a_step_is_prompts_or_decodes_and_prompts_go_first():
    engine = Engine(8)
    engine.add("a", 5)
    engine.add("b", 3)
    first = engine.step()
    assert (ran(first), first.num_prefill_groups, first.num_batched_tokens) == ([("a", 5), ("b", 3)], 2, 8)
    assert [m.is_prompt for m in engine.metadata.values()] == [True, True]
    second = engine.step()
    assert (ran(second), second.num_prefill_groups, second.num_batched_tokens) == ([("a", 1), ("b", 1)], 0, 2)
    assert [m.is_prompt for m in engine.metadata.values()] == [False, False]


def test_running_requests_stand_still_while_prompts_arrive():
    """C23."""
    engine = Engine(40)
    first = engine.add("first", 4)
    engine.step()
    assert first.seqs[0].get_len() == 5
    for number in range(5):
        engine.add(f"new {number}", 4)
        assert ran(engine.step()) == [(f"new {number}", 4)]
    assert first.seqs[0].get_len() == 5
    assert ("first", 1) in ran(engine.step())


def test_a_prompt_that_never_fits_is_ended_and_holds_up_nobody():
    """C01, D5."""
    engine = Engine(4)
    too_big, fine = engine.add("1", 17), engine.add("2", 3)
    outputs = engine.step()
    assert (ids(outputs.ignored_seq_groups), ran(outputs)) == (["1"], [("2", 3)])
    assert statuses(too_big) == [SequenceStatus.FINISHED_IGNORED]
    assert statuses(fine) == [SequenceStatus.RUNNING]
    assert outputs.decisions[0].reason == "its prompt needs more blocks than the pool has above the watermark"


@pytest.mark.parametrize(
    ("blocks", "watermark_blocks"), [(1, 0), (99, 0), (100, 1), (199, 1), (200, 2)], ids=lambda n: str(n)
)
def test_the_watermark_of_a_small_pool_is_nothing(blocks, watermark_blocks):
    """C04."""
    assert BlockSpaceManager(4, blocks, 0).watermark_blocks == watermark_blocks


def test_a_pool_of_one_block():
    """C04, C01."""
    engine = Engine(1, watermark=0.01)
    engine.add("two blocks", 5)
    engine.add("one block", 4)
    outputs = engine.step()
    assert (ids(outputs.ignored_seq_groups), ran(outputs)) == (["two blocks"], [("one block", 4)])
    with pytest.raises(ValueError, match="watermark is -0.01"):
        BlockSpaceManager(4, 1, 0, watermark=-0.01)


def test_1002_tokens_never_fit_into_49_blocks_of_16():
    """C01."""
    manager = BlockSpaceManager(16, 49, 0)
    assert manager.can_allocate(SequenceGroup("r", [Sequence(0, range(1002), 16)])).name == "NEVER"
    assert manager.can_allocate(SequenceGroup("r", [Sequence(0, range(49 * 16), 16)])).name == "OK"


def test_a_step_holds_so_many_tokens_and_a_prompt_no_more():
    """C24."""
    engine = Engine(40, max_num_batched_tokens=8, max_model_len=8, max_num_seqs=8)
    for request_id, prompt_len in (("a", 5), ("b", 3), ("c", 1), ("d", 9), ("e", 8)):
        engine.add(request_id, prompt_len, output_len=1)
    first, second, third = engine.steps(3)
    assert ran(first) == [("a", 5), ("b", 3)]
    assert first.decisions[-1].reason == "the step has no room for its tokens or sequences"
    assert (ran(second), ids(second.ignored_seq_groups)) == ([("c", 1)], ["d"])
    assert second.decisions[1].reason == "its 9 tokens exceed the limit of 8"
    assert ran(third) == [("e", 8)]


def test_a_step_holds_so_many_sequences():
    """C24. A prompt counts as the sequences that it is going to be, running ones first."""
    engine = Engine(40, max_num_seqs=3)
    for request_id, n in (("a", 2), ("b", 2), ("c", 1)):
        engine.add(request_id, 4, n=n)
    assert ran(engine.step()) == [("a", 4)]
    outputs = engine.step()
    assert ran(outputs) == [("a", 1)]
    assert engine.queues() == (["b", "c"], ["a"], [])


def test_nobody_overtakes_a_prompt_that_waits_for_blocks():
    engine = Engine(4, watermark=0.25)
    engine.add("a", 8)
    engine.step()
    engine.add("b", 8)
    engine.add("c", 1)
    outputs = engine.step()
    assert (ran(outputs), engine.queues()) == ([("a", 1)], (["b", "c"], ["a"], []))
    assert outputs.decisions[0].reason == "its prompt needs more blocks than are free"


def test_a_budget_is_spent_up_to_its_limits():
    budget = SchedulingBudget(token_budget=4, max_num_seqs=2)
    assert budget.can_schedule(4, 2)
    assert not budget.can_schedule(5, 1)
    assert not budget.can_schedule(1, 3)
    budget.add(3, 1)
    assert budget.can_schedule(1, 1)
    assert not budget.can_schedule(2, 1)
    assert not budget.can_schedule(1, 2)


# What is refused when it is added.


def test_more_sequences_than_a_step_holds_are_refused():
    """C19."""
    engine = Engine(8, max_num_seqs=3)
    with pytest.raises(ValueError, match="request r asks for 4 sequences, max_num_seqs is 3"):
        engine.add("r", 4, n=4)
    engine.add("fine", 4, n=3)
    assert ran(engine.step()) == [("fine", 4)]


@pytest.mark.parametrize(
    ("group", "said"),
    [
        (SequenceGroup("r", [Sequence(0, [], 4)]), "request r has an empty prompt"),
        (SequenceGroup("r", [Sequence(0, [1], 4), Sequence(1, [], 4)]), "request r has an empty prompt"),
        (SequenceGroup("r", [Sequence(0, [1], 16)]), "blocks of 16 tokens, the pool's blocks hold 4"),
    ],
)
def test_a_request_that_no_step_could_take_is_refused(group, said):
    engine = Engine(8)
    with pytest.raises(ValueError, match=said):
        engine.scheduler.add_seq_group(group)
    assert not engine.scheduler.has_unfinished_seqs()


def test_a_request_that_has_ended_is_refused():
    engine = Engine(8)
    group = SequenceGroup("r", [Sequence(0, [1], 4)])
    group.seqs[0].status = SequenceStatus.FINISHED_STOPPED
    with pytest.raises(ValueError, match="no WAITING sequence"):
        engine.scheduler.add_seq_group(group)


def test_an_unknown_preemption_mode_is_refused():
    """C17."""
    with pytest.raises(ValueError, match="preemption_mode is 'sawp', it must be one of"):
        SchedulerConfig(max_model_len=8, preemption_mode="sawp")


@pytest.mark.parametrize("flag", [{"enable_chunked_prefill": True}, {"num_lookahead_slots": 1}])
def test_what_is_left_out_says_so(flag):
    """A19, C18."""
    (name,) = flag
    with pytest.raises(NotImplementedError, match=name):
        SchedulerConfig(max_model_len=8, **flag)


def test_a_manager_that_counts_as_empty_is_the_one_that_is_used():
    class Counting(BlockSpaceManager):
        def __len__(self):
            return len(self.block_tables)

    manager = Counting(4, 8, 0)
    assert Scheduler(SchedulerConfig(max_model_len=8), CacheConfig(), manager).block_manager is manager


def test_a_scheduler_needs_to_know_its_pools():
    limits = SchedulerConfig(max_model_len=8)
    for sizes in ({}, {"num_gpu_blocks": 4}, {"num_cpu_blocks": 4}):
        with pytest.raises(ValueError, match="^cache_config has no num_gpu_blocks and num_cpu_blocks yet"):
            Scheduler(limits, CacheConfig(**sizes))
    config = CacheConfig(block_size=2, num_gpu_blocks=200, num_cpu_blocks=5, enable_prefix_caching=True)
    manager = Scheduler(limits, config).block_manager
    assert (manager.block_size, manager.get_num_free_gpu_blocks(), manager.get_num_free_cpu_blocks()) == (2, 200, 5)
    assert (manager.watermark_blocks, manager.enable_caching) == (2, True)
    assert Scheduler(limits, CacheConfig(num_gpu_blocks=1, num_cpu_blocks=0)).block_manager.enable_caching is False


# Running, and making room by recompute.


def test_the_oldest_runs_first_whatever_the_order_in_the_queue():
    engine = Engine(8)
    engine.add("a", 2)
    engine.add("b", 2)
    engine.step()
    engine.scheduler.running.reverse()
    assert ran(engine.step()) == [("a", 1), ("b", 1)]
    assert engine.queues()[1] == ["a", "b"]


def test_the_newest_makes_room_and_waits_at_the_front():
    """C07."""
    engine = Engine(4)
    engine.add("1", 8)
    victim = engine.add("2", 8)
    engine.step()
    engine.add("3", 8)
    outputs = engine.step()
    assert (ran(outputs), outputs.preempted) == ([("1", 1)], 1)
    assert engine.queues() == (["2", "3"], ["1"], [])
    assert statuses(victim) == [SequenceStatus.WAITING]
    assert victim.seqs[0].seq_id not in engine.manager.block_tables


def test_victims_of_two_steps_keep_their_order_of_arrival():
    """C08."""
    engine = Engine(6)
    for request_id in "123":
        engine.add(request_id, 8)
    engine.steps(3)
    assert engine.queues() == (["2", "3"], ["1"], [])


def test_victims_of_one_step_keep_their_order_of_arrival():
    """C08."""
    engine = Engine(3)
    engine.add("1", 4, n=2)
    for request_id in "234":
        engine.add(request_id, 4)
    engine.step()
    outputs = engine.step()
    assert (engine.queues()[1], actions(outputs)[-2:]) == (["1"], [("recompute", "3"), ("recompute", "2")])
    assert engine.queues()[0] == ["2", "3", "4"]


def test_a_sequence_that_fills_the_pool_is_ended():
    """C05, D5."""
    engine = Engine(4)
    group = engine.add("r", 16)
    first, second, third = engine.steps(3)
    assert (ran(first), ran(second), second.preempted) == ([("r", 16)], [], 1)
    assert second.is_empty()
    assert ids(third.ignored_seq_groups) == ["r"]
    assert (statuses(group), group.seqs[0].get_output_len()) == ([SequenceStatus.FINISHED_IGNORED], 1)
    assert not engine.scheduler.has_unfinished_seqs()
    assert engine.manager.get_num_free_gpu_blocks() == 4


def test_a_recomputed_request_is_prefilled_with_what_it_had_generated():
    """C21, the scheduler's half."""
    engine = Engine(5)
    engine.add("1", 6, output_len=5)
    victim = engine.add("2", 5, output_len=6)
    engine.steps(3)
    (seq,) = victim.seqs
    seq.num_computed_tokens = 7
    engine.step()
    assert (engine.queues(), seq.get_output_len()) == ((["2"], ["1"], []), 3)
    assert seq.num_computed_tokens == 0
    assert ran(engine.step()) == [("2", 5 + 3)]
    engine.run_to_the_end()
    assert (seq.get_prompt_len(), seq.get_output_len()) == (5, 6)


def test_a_group_with_a_finished_branch_is_recomputed():
    """C16."""
    engine = Engine(5)
    engine.add("1", 7, output_len=4)
    group = engine.add("2", 7, output_len=8, n=2)
    engine.step()
    finish(engine.scheduler, group.seqs[0])
    assert ("recompute", "2") in actions(engine.steps(2)[-1])
    assert statuses(group) == [SequenceStatus.FINISHED_STOPPED, SequenceStatus.WAITING]
    all_outputs = engine.run_to_the_end()
    assert [("2", 9)] in [ran(outputs) for outputs in all_outputs]
    assert [seq.get_output_len() for seq in group.seqs] == [1, 8]
    assert statuses(group) == [SequenceStatus.FINISHED_STOPPED] * 2


def test_a_slot_freed_by_a_swap_may_be_the_target_of_a_copy():
    """The order of work in a step is: swap in, swap out, copy."""
    engine = Engine(3, 2, preemption_mode="swap")
    engine.add("1", 2, n=2)
    engine.add("2", 2)
    engine.step()
    outputs = engine.step()
    ((freed, _),) = outputs.blocks_to_swap_out
    assert [target for _, target in outputs.blocks_to_copy] == [freed]


def test_what_has_ended_neither_runs_nor_makes_room():
    """Whether or not anybody has called free_finished_seq_groups."""
    engine = Engine(4)
    first, last = engine.add("1", 8), engine.add("2", 8)
    engine.scheduler.schedule(0.0)
    finish(engine.scheduler, last.seqs[0])
    first.seqs[0].append_token_id(7)
    engine.fill()
    outputs = engine.step()
    assert (actions(outputs), ran(outputs)) == ([("recompute", "1")], [])
    assert engine.queues() == (["1"], [], [])


# Making room by swapping, and coming back.


def swapped_pair(**options):
    """Request 1 runs, 2 has been swapped out to make room for it."""
    engine = Engine(4, 8, preemption_mode="swap", **options)
    engine.add("1", 8, output_len=5)
    engine.add("2", 8, output_len=5)
    engine.step()
    engine.step()
    assert engine.queues() == ([], ["1"], ["2"])
    return engine


def test_swap_mode_swaps_a_single_sequence():
    """C17."""
    engine = Engine(4, 8, preemption_mode="swap")
    engine.add("1", 8)
    group = engine.add("2", 8)
    engine.step()
    on_gpu = engine.manager.get_block_table(group.seqs[0])
    outputs = engine.step()
    on_cpu = engine.manager.get_block_table(group.seqs[0])
    assert outputs.blocks_to_swap_out == list(zip(on_gpu, on_cpu, strict=True))
    assert (statuses(group), outputs.preempted) == ([SequenceStatus.SWAPPED], 1)


def test_several_sequences_are_swapped_without_being_asked():
    engine = Engine(4, 8)
    engine.add("1", 8)
    engine.add("2", 7, n=2)
    engine.step()
    assert engine.step().preempted == 1
    assert engine.queues() == ([], ["1"], ["2"])


def before_a_prompt_of_several_was_forked(**flags):
    """Both have a token that needs a block, and none is left; 2 is to be two sequences and is still one."""
    engine = Engine(4, 8, **flags)
    groups = engine.add("1", 8), engine.add("2", 8, n=2)
    engine.scheduler.schedule(0.0)
    for group in groups:
        group.seqs[0].append_token_id(7)
    engine.scheduler.schedule(1.0)
    return engine


def test_a_prompt_that_was_to_be_several_sequences_is_swapped():
    assert before_a_prompt_of_several_was_forked().queues() == ([], ["1"], ["2"])


def test_recompute_mode_swaps_what_it_cannot_recompute():
    """C17."""
    engine = Engine(4, 8, preemption_mode="recompute")
    engine.add("1", 8, output_len=4)
    group = engine.add("2", 7, output_len=4, n=2)
    engine.step()
    assert engine.step().preempted == 1
    assert (engine.queues(), statuses(group)) == (([], ["1"], ["2"]), [SequenceStatus.SWAPPED] * 2)


def test_recompute_mode_recomputes_the_prompt_of_several_sequences():
    engine = before_a_prompt_of_several_was_forked(preemption_mode="recompute")
    assert engine.queues() == (["2"], ["1"], [])


def test_nothing_is_prefilled_while_somebody_is_swapped_out():
    """C18."""
    engine = swapped_pair()
    engine.add("3", 1)
    assert ran(engine.step()) == [("1", 1)]
    assert engine.queues() == (["3"], ["1"], ["2"])


def test_who_was_swapped_out_comes_back_and_goes_on():
    engine = swapped_pair()
    group = engine.groups["2"]
    on_cpu = engine.manager.get_block_table(group.seqs[0])
    while engine.scheduler.swapped:
        outputs = engine.step()
    on_gpu = engine.manager.get_block_table(group.seqs[0])
    assert outputs.blocks_to_swap_in == list(zip(on_cpu, on_gpu[:2], strict=True))
    assert len(on_gpu) == 3
    assert (ran(outputs), outputs.num_batched_tokens) == ([("2", 1)], 1)
    assert ("swap in", "2") in actions(outputs)
    engine.run_to_the_end()
    assert group.seqs[0].get_output_len() == 5


def test_the_branches_that_are_left_are_swapped_and_count_a_token_each():
    engine = Engine(8, 8)
    engine.add("1", 8)
    group = engine.add("2", 7, output_len=4, n=3)
    engine.step()
    finish(engine.scheduler, group.seqs[0])
    engine.fill()
    assert engine.step().preempted == 1
    assert [seq.status.name for seq in group.seqs] == ["FINISHED_STOPPED", "SWAPPED", "SWAPPED"]
    engine.empty()
    outputs = engine.step()
    assert (ran(outputs), outputs.num_batched_tokens) == ([("1", 1), ("2", 1)], 3)
    assert engine.step().num_batched_tokens == 3
    engine.scheduler.abort_seq_group("1")
    engine.run_to_the_end()
    assert [seq.get_output_len() for seq in group.seqs] == [1, 4, 4]


def test_nobody_comes_back_in_a_step_that_made_somebody_room():
    engine = Engine(6, 12, preemption_mode="swap")
    for request_id in "123":
        engine.add(request_id, 8, output_len=9)
    engine.step()
    assert engine.step().preempted == 1
    assert engine.queues() == ([], ["1", "2"], ["3"])
    outputs = engine.step()
    assert (outputs.preempted, outputs.blocks_to_swap_in) == (1, [])
    assert engine.queues() == ([], ["1"], ["3", "2"])
    assert [action for action, _ in actions(outputs)] == ["swap out"]


def test_the_oldest_swapped_group_comes_back_first():
    engine = Engine(6, 12, preemption_mode="swap")
    for request_id in "123":
        engine.add(request_id, 8, output_len=9)
    engine.steps(3)
    engine.scheduler.abort_seq_group("1")
    outputs = engine.step()
    assert [name for name, _ in ran(outputs)] == ["2", "3"]
    assert engine.queues() == ([], ["2", "3"], [])


def test_a_swapped_group_waits_for_blocks_and_nobody_overtakes_it():
    engine = Engine(6, 12, preemption_mode="swap")
    for request_id, prompt_len in (("1", 8), ("2", 12), ("3", 4)):
        engine.add(request_id, prompt_len)
    engine.steps(2)
    assert engine.queues() == ([], ["1"], ["3", "2"])
    outputs = engine.step()
    assert engine.queues() == ([], ["1"], ["2", "3"])
    assert actions(outputs) == [("wait", "2")]
    assert outputs.decisions[0].reason == "swapped out, and there is no room to come back"


def test_a_swapped_group_waits_for_a_step_with_room_for_its_sequences():
    engine = Engine(8, 8, preemption_mode="swap", max_num_seqs=2)
    engine.add("1", 8)
    group = engine.add("2", 8)
    engine.step()
    engine.fill()
    engine.step()
    assert engine.queues() == ([], ["1"], ["2"])
    engine.empty()
    parent = engine.groups["1"].seqs[0]
    engine.groups["1"].add(child := parent.fork(1))
    engine.scheduler.fork_seq(parent, child)
    assert actions(engine.step()) == [("wait", "2")]
    assert engine.manager.can_swap_in(group) is AllocStatus.OK


def test_a_swapped_group_that_can_never_come_back_frees_its_cpu_blocks():
    """C12, D5."""
    engine = Engine(4, 8)
    group = engine.add("r", 7, n=2)
    engine.steps(3)
    assert (engine.queues(), engine.manager.get_num_free_cpu_blocks()) == (([], [], ["r"]), 5)
    engine.add("behind", 3, output_len=2)
    outputs = engine.step()
    assert (ids(outputs.ignored_seq_groups), engine.manager.get_num_free_cpu_blocks()) == (["r"], 8)
    assert statuses(group) == [SequenceStatus.FINISHED_IGNORED] * 2
    assert engine.manager.block_tables == {}
    assert actions(outputs) == [("ignore", "r")]
    engine.run_to_the_end()


def test_a_watermark_in_the_way_of_coming_back_ends_the_group_and_not_the_queue():
    """It needs 3 blocks and 2 more, the pool has 5, and 1 of them is the watermark."""
    engine = Engine(5, 8, watermark=0.2)
    engine.add("r", 7, n=2)
    engine.steps(2)
    engine.fill()
    engine.step()
    assert (engine.queues(), engine.manager.get_num_free_cpu_blocks()) == (([], [], ["r"]), 5)
    engine.empty()
    engine.add("behind", 3, output_len=2)
    assert ids(engine.step().ignored_seq_groups) == ["r"]
    engine.run_to_the_end()
    assert engine.groups["behind"].seqs[0].get_output_len() == 2


def test_without_swap_space_only_the_group_that_needs_it_ends():
    """C10."""
    engine = Engine(4, 0)
    group = engine.add("r", 7, n=2)
    engine.steps(2)
    behind = engine.add("behind", 6, output_len=2)
    outputs = engine.step()
    assert (ids(outputs.aborted_seq_groups), outputs.preempted) == (["r"], 0)
    assert statuses(group) == [SequenceStatus.FINISHED_ABORTED] * 2
    assert actions(outputs) == [("wait", "behind"), ("abort", "r")]
    assert "swap space" in outputs.decisions[1].reason
    engine.run_to_the_end()
    assert behind.seqs[0].get_output_len() == 2


def test_single_sequences_need_no_swap_space():
    """C10."""
    engine = Engine(4, 0)
    for request_id in "123":
        engine.add(request_id, 6, output_len=6)
    all_outputs = engine.run_to_the_end()
    assert sum(outputs.preempted for outputs in all_outputs) > 0
    assert not any(outputs.aborted_seq_groups or outputs.ignored_seq_groups for outputs in all_outputs)


def test_nobody_comes_back_in_a_step_that_ended_somebody_for_want_of_room():
    engine = Engine(6, 2, preemption_mode="swap")
    for request_id in "123":
        engine.add(request_id, 8, output_len=9)
    engine.step()
    assert engine.step().preempted == 1
    outputs = engine.step()
    assert (ids(outputs.aborted_seq_groups), outputs.preempted, outputs.blocks_to_swap_in) == (["2"], 0, [])
    assert engine.queues() == ([], ["1"], ["3"])
    assert engine.step().blocks_to_swap_in != []


# Aborting.


@pytest.mark.parametrize("caching", [False, True])
@pytest.mark.parametrize("queue", ["waiting", "running", "swapped"])
def test_abort_works_in_every_queue(queue, caching):
    engine = swapped_pair(caching=caching)
    engine.add("3", 1)
    request_id = {"running": "1", "swapped": "2", "waiting": "3"}[queue]
    engine.scheduler.abort_seq_group("nobody")
    engine.scheduler.abort_seq_group(request_id)
    assert statuses(engine.groups[request_id]) == [SequenceStatus.FINISHED_ABORTED]
    assert all(request_id not in queue for queue in engine.queues())
    assert engine.groups[request_id].seqs[0].seq_id not in engine.manager.block_tables
    assert engine.scheduler.get_num_unfinished_seq_groups() == 2
    engine.run_to_the_end()


def test_ending_twice_frees_once():
    """A10."""
    engine = Engine(8)
    group = engine.add("r", 8)
    engine.step()
    for _ in range(2):
        engine.scheduler.abort_seq_group("r")
        engine.scheduler.free_seq(group.seqs[0])
    assert engine.manager.get_num_free_gpu_blocks() == 8
    assert not engine.scheduler.has_unfinished_seqs()


def test_abort_leaves_finished_siblings_as_they_ended():
    engine = Engine(8)
    group = engine.add("r", 7, n=2)
    engine.step()
    finish(engine.scheduler, group.seqs[0])
    engine.scheduler.abort_seq_group("r")
    assert statuses(group) == [SequenceStatus.FINISHED_STOPPED, SequenceStatus.FINISHED_ABORTED]
    assert engine.manager.get_num_free_gpu_blocks() == 8


# Prefix caching.


def test_equal_prompts_of_one_step_share_blocks_and_both_compute():
    engine = Engine(8, caching=True)
    engine.add("1", range(9), output_len=2)
    engine.add("2", range(9), output_len=2)
    engine.step()
    one, two = engine.metadata["1"], engine.metadata["2"]
    assert one.block_tables[0] == two.block_tables[10]
    assert one.computed_block_nums == two.computed_block_nums == []
    engine.add("3", range(9), output_len=1)
    engine.step()
    assert engine.metadata["3"].computed_block_nums == one.block_tables[0][:2]
    engine.run_to_the_end()


def test_cached_tokens_are_charged_in_full():
    engine = Engine(8, caching=True)
    engine.add("1", range(8), output_len=1)
    engine.step()
    engine.add("2", range(8))
    outputs = engine.step()
    assert (outputs.num_batched_tokens, engine.metadata["2"].token_chunk_size) == (8, 8)
    assert engine.metadata["2"].computed_block_nums == [0]


def test_hits_are_looked_up_when_a_request_is_scheduled_not_before():
    """B19, the scheduler's half."""
    engine = Engine(6, caching=True)
    engine.add("first", range(9), output_len=1)
    engine.step()
    engine.add("runs", 16, output_len=8)
    engine.step()
    engine.add("late", range(9), output_len=1)
    assert engine.step().decisions[0].action == "wait"
    while "late" not in engine.metadata:
        engine.step()
    assert engine.metadata["late"].computed_block_nums == []


def test_stamps_follow_the_clock():
    engine = Engine(8, caching=True)
    group = engine.add("r", 6)
    engine.steps(3)
    assert [block.last_accessed for block in engine.manager.block_tables[group.seqs[0].seq_id]] == [2.0, 2.0]


def test_the_system_clock_serves_where_none_is_given():
    engine = Engine(8, caching=True)
    group = engine.add("r", 6)
    stamps = []
    for _ in range(2):
        engine.scheduler.schedule()
        stamps.append(engine.manager.block_tables[group.seqs[0].seq_id][0].last_accessed)
        group.seqs[0].append_token_id(1)
    assert 0 <= stamps[0] <= stamps[1]


# The victim of another policy.


def test_longest_slowest_takes_the_longest():
    engine = Engine(6, policy="longest-slowest")
    engine.add("old", 8)
    engine.add("long", 12)
    engine.add("new", 4)
    engine.step()
    outputs = engine.step()
    assert actions(outputs)[-1] == ("recompute", "long")
    assert engine.queues() == (["long"], ["old", "new"], [])


def test_longest_slowest_takes_the_slowest_of_equal_length():
    """Two branches generate two tokens a step, so with as many tokens in all they are the faster request."""
    engine = Engine(24, 24, policy="longest-slowest")
    engine.add("old", 4)
    engine.add("fast", 3, n=2)
    engine.add("slow", 10)
    engine.add("new", 1)
    engine.steps(4)
    totals = {name: sum(seq.get_len() for seq in group.seqs) for name, group in engine.groups.items()}
    assert totals["fast"] == totals["slow"] > totals["new"]
    engine.fill()
    assert actions(engine.step())[0] == ("recompute", "slow")


@pytest.mark.parametrize("namesake", [None, "finished", "aborted"])
def test_longest_slowest_takes_the_one_that_has_generated_nothing_yet(namesake):
    """Of two requests as long as each other. A request of the same name that has ended does not count."""
    engine = Engine(24, 24, policy="longest-slowest")
    engine.add("old", 4)
    engine.add("seasoned", 5)
    if namesake:
        engine.add("fresh", 2, output_len=3 if namesake == "finished" else 99)
    engine.steps(3)
    engine.scheduler.abort_seq_group("fresh")
    engine.add("fresh", 7)
    engine.step()
    assert [engine.groups[name].seqs[0].get_len() for name in ("seasoned", "fresh")] == [8, 8]
    engine.fill()
    assert actions(engine.step())[0] == ("recompute", "fresh")


def test_longest_slowest_counts_recent_steps_only():
    """Two branches are faster than one, however slow the steps were when they had just begun."""
    engine = Engine(80, policy="longest-slowest", max_model_len=256)
    engine.add("old", 4)
    fast = engine.add("fast now", 3, n=2)
    for _ in range(6):
        engine.step()
        engine.now += 100.0
    slow = engine.add("slow now", sum(seq.get_len() for seq in fast.seqs) + 19)
    engine.steps(21)
    assert sum(seq.get_len() for seq in fast.seqs) == slow.seqs[0].get_len()
    engine.fill()
    assert actions(engine.step())[0][1] == "slow now"


def test_longest_slowest_victims_of_one_step_wait_in_order_of_arrival():
    engine = Engine(3, policy="longest-slowest")
    engine.add("1", 4, n=2)
    engine.add("2", 4)
    engine.add("3", 3)
    engine.step()
    assert actions(engine.step()) == [("recompute", "2"), ("recompute", "3")]
    assert engine.queues() == (["2", "3"], ["1"], [])


# What is written down.


def test_every_decision_is_written_down_with_what_it_was_based_on():
    engine = Engine(5, 8, watermark=0.2, preemption_mode="swap")
    engine.add("1", 8)
    engine.add("2", 4)
    engine.add("3", 17)
    engine.add("4", 8)
    first = engine.step()
    values = [
        (d.action, d.request_id, d.num_free_gpu_blocks, d.num_free_cpu_blocks, d.num_waiting, d.num_running)
        for d in first.decisions
    ]
    assert values == [
        ("prefill", "1", 3, 8, 3, 1),
        ("prefill", "2", 2, 8, 2, 2),
        ("ignore", "3", 2, 8, 1, 2),
        ("wait", "4", 2, 8, 1, 2),
    ]
    assert {d.watermark_blocks for d in first.decisions} == {1}
    assert first.decisions[0].reason == "8 tokens"


def test_swaps_are_written_down_when_they_are_done():
    engine = Engine(4, 8, preemption_mode="swap")
    engine.add("1", 8)
    engine.add("2", 8)
    engine.step()
    (decision,) = engine.step().decisions
    assert (decision.action, decision.request_id, decision.num_swapped) == ("swap out", "2", 1)
    assert (decision.num_free_gpu_blocks, decision.num_free_cpu_blocks) == (2, 6)


def test_decisions_are_printed_in_columns(capsys):
    engine = Engine(5, 8, log_decisions=True)
    engine.add("a", 8)
    engine.add("request", 30)
    engine.step()
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "prefill   a        gpu free     3 (watermark 0)  cpu free     8  waiting   1 running   1 swapped   0  "
        "8 tokens",
        "ignore    request  gpu free     3 (watermark 0)  cpu free     8  waiting   0 running   1 swapped   0  "
        "its prompt needs more blocks than the pool has above the watermark",
    ]
    Engine(5, 8).scheduler.schedule(0.0)
    assert capsys.readouterr().out == ""


def test_nothing_to_do_is_an_empty_step():
    engine = Engine(4)
    outputs = engine.step()
    assert outputs.is_empty()
    assert (engine.metadata, outputs.decisions, outputs.num_batched_tokens) == ({}, [], 0)
    assert not engine.scheduler.has_unfinished_seqs()


# The end.


@pytest.mark.parametrize("policy", ["fcfs", "longest-slowest"])
@pytest.mark.parametrize("mode", [None, "swap", "recompute"])
@pytest.mark.parametrize("caching", [False, True])
def test_every_request_ends(policy, mode, caching):
    """D5. Whatever is asked for, in a pool that is too small for most of it."""
    engine = Engine(6, 4, watermark=0.2, caching=caching, preemption_mode=mode, policy=policy)
    for number in range(24):
        tokens = range(number % 5, number % 5 + 3 + 5 * (number % 4))
        engine.add(str(number), tokens, output_len=1 + number % 7, n=1 + number % 3)
    engine.run_to_the_end(most_steps=600)
    assert all(group.is_finished() for group in engine.groups.values())


def test_a_sequence_id_in_use_is_refused_and_free_again_afterwards():
    engine = Engine(16)
    group = engine.add("a", 4, output_len=2, n=2)
    with pytest.raises(ValueError, match="request a: sequence 0 is in the scheduler already"):
        engine.scheduler.add_seq_group(group)
    engine.step()
    child = group.seqs[1].seq_id
    namesake = SequenceGroup("b", [Sequence(child, [1], 4)])
    with pytest.raises(ValueError, match=f"request b: sequence {child} is in the scheduler already"):
        engine.scheduler.add_seq_group(namesake)
    assert engine.queues() == ([], ["a"], [])
    engine.step()
    assert not engine.scheduler.has_unfinished_seqs()
    engine.scheduler.add_seq_group(namesake)
    engine.scheduler.abort_seq_group("b")
    engine.scheduler.add_seq_group(SequenceGroup("c", [Sequence(child, [1], 4)]))
    assert engine.queues() == (["c"], [], [])

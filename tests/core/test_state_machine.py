"""Random lives of requests, under the block manager alone and under the scheduler, compared with the model throughout.

Pools are tiny, so that everything runs out; prompts have two different tokens and lengths about the block boundaries,
so that contents meet. What is compared after every call is in `checked_manager.py`. HYPOTHESIS_PROFILE=nightly makes
the runs long.
"""

import random
from unittest import mock

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from refimpl import (
    AllocStatus,
    CacheConfig,
    SamplingParams,
    SchedulerConfig,
    Sequence,
    SequenceGroup,
    num_required_blocks,
)
from refimpl import SequenceStatus as Status
from refimpl.prefix_hash import PrefixKeys
from refimpl.scheduler import Scheduler
from tests.core.checked_manager import CALLS, EVENTS, CheckedManager, Worker, ids, tokens_of

SEEDS = st.integers(0, 2**16)
MANAGER_CALLS = ("decode",) * 10 + ("arrive", "admit", "swap_out", "swap_in") * 3
MANAGER_CALLS += ("fork", "finish", "recompute", "ask_for_a_common_prefix") * 2 + ("misuse", "reset")
SCHEDULER_CALLS = ("run",) * 4 + ("arrive",) * 2 + ("abort",)


class NothingToDo(Exception):
    """No group is in the state that the operation is for."""


def prompt_for(rng, block_size, known, longest):
    """Tokens 0 and 1 of a length about a block boundary; often beginning as a known sequence, or its very prompt."""
    if known and rng.random() < 0.3:
        return rng.choice(known).prompt_token_ids[:longest]
    boundary = rng.randrange(4) * block_size
    length = max(1, min(boundary + rng.choice((-1, 0, 1, 2)), longest))
    begin = rng.choice(known).get_token_ids() if known and rng.random() < 0.5 else []
    tokens = begin[: rng.choice((length, len(begin)))] + [rng.randrange(2) for _ in range(length)]
    return tokens[: length if rng.random() < 0.7 else longest]


class ManagerMachine(RuleBasedStateMachine):
    """Calls that a scheduler makes, in legal order, and calls that have to be refused, in any."""

    caching = False
    sound = False  # set up, and nothing has failed
    patch = None

    @initialize(
        block_size=st.sampled_from((1, 2, 3, 4)),
        num_gpu_blocks=st.integers(1, 14),
        num_cpu_blocks=st.integers(0, 8),
        watermark=st.sampled_from((0, 0.01, 0.1, 0.29, 0.5)),
        forgets_at_once=st.booleans(),
        seed=SEEDS,
    )
    def build(self, block_size, num_gpu_blocks, num_cpu_blocks, watermark, forgets_at_once, seed):
        self.rng = random.Random(seed)
        self.manager = CheckedManager(block_size, num_gpu_blocks, num_cpu_blocks, watermark, self.caching)
        if forgets_at_once:  # instead of after a thousand prefixes
            self.patch = mock.patch.object(PrefixKeys, "has_many", return_value=True)
            self.patch.start()
        self.worker = Worker(self.manager)
        self.block_size = block_size
        self.groups = []  # unfinished ones
        self.num_seqs = self.now = 0
        self.clear_step()
        self.sound = True

    def clear_step(self):
        self.swapped_in, self.swapped_out, self.copies = [], [], []
        self.running = []  # (group, sequences that run in this step, whether it is a prompt)

    def compute(self):
        """The step that has been put together so far, prompts or decodes: marked, then computed."""
        manager, prompts, decodes = self.manager, {}, []
        for _, seqs, is_prompt in self.running:
            for seq in seqs:
                if self.rng.random() < 0.8:
                    manager.access_all_blocks_in_seq(seq, self.now)
            if is_prompt:
                prompts |= dict.fromkeys(seqs, len(manager.get_common_computed_block_ids(seqs)) * self.block_size)
            else:
                decodes += seqs
        for group, _, _ in self.running:
            manager.mark_blocks_as_computed(group)
        self.worker.run(self.swapped_in, self.swapped_out, self.copies, prompts, decodes)
        self.now += self.rng.randrange(2)
        self.clear_step()

    @rule(what=st.sampled_from(MANAGER_CALLS), seed=SEEDS)
    def call(self, what, seed):
        """One operation, on what `seed` picks; where there is nothing for it to be done to, a request arrives."""
        self.rng = random.Random(seed)
        self.sound = False
        try:
            getattr(self, what)()
        except NothingToDo:
            self.arrive()
        self.sound = True

    def pick(self, *statuses):
        """A group whose unfinished sequences all have one of these statuses."""
        fitting = [g for g in self.groups if all(seq.status in statuses for seq in g.get_unfinished_seqs())]
        if not fitting:
            raise NothingToDo
        return self.rng.choice(fitting)

    def anyway(self):
        """Whether to go ahead with what was said not to fit."""
        return self.rng.random() < 0.5

    def new_id(self):
        self.num_seqs += 1
        return self.num_seqs - 1

    def arrive(self):
        if len(self.groups) > 7:
            return
        known = [seq for group in self.groups for seq in group.seqs]
        prompt = prompt_for(self.rng, self.block_size, known, 5 * self.block_size)
        seqs = [Sequence(self.new_id(), prompt, self.block_size) for _ in range(self.rng.choice((1, 1, 2, 3)))]
        self.groups.append(SequenceGroup(f"r{seqs[0].seq_id}", seqs))
        self.admit()

    def admit(self):
        group = self.pick(Status.WAITING)
        if self.manager.can_allocate(group) is not AllocStatus.OK and not self.anyway():
            return
        if not all(is_prompt for _, _, is_prompt in self.running):
            self.compute()
        waiting = group.get_seqs(Status.WAITING)
        try:
            self.manager.allocate(group)
        except ValueError:
            return
        for seq in waiting:
            seq.status = Status.RUNNING
        self.running.append((group, waiting, True))

    def decode(self):
        group = self.pick(Status.RUNNING)
        if any(is_prompt or group is other for other, _, is_prompt in self.running):
            self.compute()
        running, token, same = group.get_seqs(Status.RUNNING), self.rng.randrange(2), self.rng.random() < 0.5
        for seq in running:
            if seq.get_len() == self.manager.num_slots[seq.seq_id]:
                seq.append_token_id(token if same else self.rng.randrange(2))
        if not self.manager.can_append_slots(group) and not self.anyway():
            return
        for seq in running:
            try:
                self.copies += self.manager.append_slots(seq)
            except ValueError:
                continue
            self.running.append((group, [seq], False))

    def fork(self):
        group = self.pick(Status.RUNNING, Status.SWAPPED)
        if group.num_unfinished_seqs() > 3:
            return
        self.compute()
        parent = self.rng.choice(group.get_unfinished_seqs())
        child = parent.fork(self.new_id())
        group.add(child)
        self.manager.fork(parent, child)
        self.worker.fork(parent, child)

    def finish(self):
        group = self.pick(Status.WAITING, Status.RUNNING, Status.SWAPPED)
        self.compute()
        self.end(group, self.rng.choice(group.get_unfinished_seqs()))

    def end(self, group, seq):
        seq.status = Status.FINISHED_STOPPED
        self.manager.free(seq)
        self.manager.free(seq)
        if group.is_finished():
            self.groups.remove(group)

    def recompute(self):
        group = self.pick(Status.RUNNING, Status.SWAPPED)
        if group.num_unfinished_seqs() > 1:
            raise NothingToDo
        self.compute()
        (seq,) = group.get_unfinished_seqs()
        seq.status = Status.WAITING
        self.manager.free(seq)

    def swap_out(self):
        group = self.pick(Status.RUNNING)
        self.compute()
        if not self.manager.can_swap_out(group) and not self.anyway():
            return
        try:
            self.swapped_out += self.manager.swap_out(group)
        except ValueError:
            return
        set_status(group, Status.RUNNING, Status.SWAPPED)

    def swap_in(self):
        group = self.pick(Status.SWAPPED)
        self.compute()
        if self.manager.can_swap_in(group) is not AllocStatus.OK and not self.anyway():
            return
        try:
            self.swapped_in += self.manager.swap_in(group)
        except ValueError:
            return
        set_status(group, Status.SWAPPED, Status.RUNNING)

    def ask_for_a_common_prefix(self):
        """Over sequences of several groups and on both devices, some without a table, or over none at all."""
        seqs = [seq for group in self.groups for seq in group.seqs]
        self.rng.shuffle(seqs)
        self.manager.get_common_computed_block_ids(seqs[: self.rng.randrange(4)])

    def misuse(self):
        """What has to be refused, or do nothing, whatever the state."""
        stranger = Sequence(10**6, [1], self.block_size)
        self.manager.free(stranger)
        self.manager.fork(stranger, Sequence(10**6 + 1, [1], self.block_size))
        with pytest.raises(KeyError):
            self.manager.append_slots(stranger)
        group = self.pick(Status.RUNNING, Status.SWAPPED)
        seq = group.get_unfinished_seqs()[0]
        if seq.status is Status.SWAPPED:
            with pytest.raises(ValueError):
                self.manager.append_slots(seq)
        twin = seq.fork(seq.seq_id)
        with pytest.raises(ValueError):
            self.manager.fork(twin, twin)
        twin.status = Status.WAITING
        with pytest.raises(ValueError):
            self.manager.allocate(SequenceGroup("allocated already", [twin]))
        for _ in range(2 * self.block_size):
            twin.append_token_id(0)
        with pytest.raises(ValueError):
            self.manager.append_slots(twin)

    def reset(self):
        if self.rng.random() < 0.8:
            return
        self.compute()
        self.manager.reset()
        self.groups.clear()

    def teardown(self):
        try:
            if self.sound:
                self.end_all()
        finally:
            if self.patch:
                self.patch.stop()

    def end_all(self):
        self.compute()
        for group in list(self.groups):
            for seq in group.get_unfinished_seqs():
                self.end(group, seq)
        assert_all_free(self.manager)


class CachingManagerMachine(ManagerMachine):
    caching = True


class SchedulerMachine(RuleBasedStateMachine):
    """A scheduler, and an engine that makes tokens up; what runs is checked at every step, the end in `teardown`."""

    caching = False
    sound = False  # set up, and nothing has failed

    @initialize(
        block_size=st.sampled_from((1, 2, 3, 4)),
        num_gpu_blocks=st.sampled_from((1, 2, 4, 6, 8, 10, 12, 14, 20)),
        num_cpu_blocks=st.sampled_from((0, 2, 6, 12, 20)),
        watermark=st.sampled_from((0, 0.01, 0.1, 0.29, 0.5)),
        mode=st.sampled_from((None, "recompute", "swap")),
        policy=st.sampled_from(("fcfs", "fcfs", "longest-slowest")),
        max_num_seqs=st.integers(1, 6),
        max_blocks=st.integers(2, 6),
        spare_tokens=st.integers(0, 8),
        seed=SEEDS,
    )
    def build(
        self,
        block_size,
        num_gpu_blocks,
        num_cpu_blocks,
        watermark,
        mode,
        policy,
        max_num_seqs,
        max_blocks,
        spare_tokens,
        seed,
    ):
        self.rng = random.Random(seed)
        self.manager = CheckedManager(block_size, num_gpu_blocks, num_cpu_blocks, watermark, self.caching)
        self.worker = Worker(self.manager)
        self.max_len = block_size * max_blocks
        self.max_num_seqs = max_num_seqs
        self.token_budget = max(self.max_len, max_num_seqs) + spare_tokens
        config = SchedulerConfig(self.token_budget, max_num_seqs, self.max_len, preemption_mode=mode, policy=policy)
        self.scheduler = Scheduler(config, CacheConfig(block_size), self.manager)
        self.groups = []  # every one that was queued
        self.outputs_wanted = {}  # request_id -> tokens of each sequence
        self.num_seqs = self.now = self.idle_steps = 0
        self.steps_left = 1
        self.early_end = 0.03
        self.sound = True

    def allow_steps(self, seq_group):
        """Room for one request more in the bound on the number of steps.

        A step makes a token, or ends a request, or is idle (it moves blocks out and schedules nothing). At most
        `num_candidates * output length` steps make a token of this request, one ends it, and no two are idle in a row.
        """
        tokens = seq_group.sampling_params.num_candidates * self.outputs_wanted[seq_group.request_id]
        self.steps_left += 2 * (tokens + 1)

    def queues(self):
        return [self.scheduler.waiting, self.scheduler.running, self.scheduler.swapped]

    def unfinished(self):
        return [group for group in self.groups if not group.is_finished()]

    @rule(what=st.sampled_from(SCHEDULER_CALLS), seed=SEEDS)
    def call(self, what, seed):
        self.rng = random.Random(seed)
        self.sound = False
        getattr(self, what)()
        self.sound = True

    def arrive(self):
        for _ in range(self.rng.randint(1, 3)):
            self.now += self.rng.randrange(2)
            known = [seq for group in self.groups[-6:] for seq in group.seqs]
            longest = self.max_len + 1 if self.rng.random() < 0.1 else self.max_len // 2
            prompt = prompt_for(self.rng, self.manager.block_size, known, longest)
            self.add(prompt, n=self.rng.choice((1, 1, 1, 2, 3)), output=self.rng.randint(1, 12))

    def add(self, prompt, n, output):
        """Queue a request for `n` sequences of `output` tokens; the group, or None where it is refused."""
        seq = Sequence(self.num_seqs, prompt, self.manager.block_size)
        self.num_seqs += 1
        params = SamplingParams(best_of=n, max_tokens=output)
        group = SequenceGroup(f"r{seq.seq_id}", [seq], params, arrival_time=self.now)
        CALLS["add_seq_group"] += 1
        if n > self.max_num_seqs:
            with pytest.raises(ValueError):
                self.scheduler.add_seq_group(group)
            return None
        self.scheduler.add_seq_group(group)
        self.groups.append(group)
        self.outputs_wanted[group.request_id] = output
        self.allow_steps(group)
        return group

    def abort(self):
        CALLS["abort_seq_group"] += 1
        self.scheduler.abort_seq_group("nobody")
        if self.unfinished():
            group = self.rng.choice(self.unfinished())
            self.scheduler.abort_seq_group(group.request_id)
            assert group.is_finished()
            self.check_queues()

    def run(self):
        self.step()
        for _ in range(self.rng.randrange(4)):
            if self.scheduler.has_unfinished_seqs():
                self.step()

    def step(self):
        CALLS["schedule"] += 1
        self.now += self.rng.randrange(2)
        waiting, running, swapped = [list(queue) for queue in self.queues()]
        head, hopeless = self.admissible_head(), self.hopeless()
        length_of = {group: sum(seq.get_len() for seq in group.get_unfinished_seqs()) for group in running}
        metadata, outputs = self.scheduler.schedule(now=self.now)
        scheduled = [item.seq_group for item in outputs.scheduled_seq_groups]
        for decision in outputs.decisions:
            EVENTS[f"scheduler: {decision.action}"] += 1
        self.check_budget(metadata, outputs)
        self.check_order(waiting, running, swapped, scheduled, outputs)
        if not outputs.num_prefill_groups:
            self.check_victims(running, length_of, scheduled)
        assert head is None or head in scheduled, "the head of the waiting queue had room and was left"
        assert set(outputs.ignored_seq_groups) <= hopeless, "a request was ignored that could have run"
        self.check_nobody_forgotten(outputs)
        self.check_progress(outputs)
        prompts, decodes = {}, []
        for told in metadata:
            for seq in told.seq_data.values():
                assert told.block_tables[seq.seq_id] == [number for _, number in self.worker.table(seq)]
            if told.is_prompt:
                num_skipped = len(told.computed_block_nums) * self.manager.block_size
                prompts |= dict.fromkeys(told.seq_data.values(), num_skipped)
            else:
                decodes += told.seq_data.values()
        moves = outputs.blocks_to_swap_in, outputs.blocks_to_swap_out, outputs.blocks_to_copy
        self.worker.run(*moves, prompts, decodes)
        for group in scheduled:
            self.sample(group)
        self.scheduler.free_finished_seq_groups()
        self.check_queues()

    def sample(self, group):
        """One token for each sequence, after the prompt was forked into as many as were asked for."""
        running = group.get_seqs(Status.RUNNING)
        for _ in range(group.sampling_params.num_candidates - group.num_seqs()):
            child = running[0].fork(self.num_seqs)
            self.num_seqs += 1
            group.add(child)
            self.scheduler.fork_seq(running[0], child)
            self.worker.fork(running[0], child)
        token, same = self.rng.randrange(2), self.rng.random() < 0.5
        for seq in group.get_seqs(Status.RUNNING):
            seq.append_token_id(token if same else self.rng.randrange(2))
            full = seq.get_len() >= self.max_len or seq.get_output_len() >= self.outputs_wanted[group.request_id]
            if full or self.rng.random() < self.early_end:
                seq.status = Status.FINISHED_STOPPED
                self.scheduler.free_seq(seq)

    def check_budget(self, metadata, outputs):
        assert outputs.num_batched_tokens <= self.token_budget
        tokens = sum(len(m.seq_data) * m.token_chunk_size for m in metadata)
        assert tokens == outputs.num_batched_tokens, "tokens charged are not the tokens that run"
        assert sum(len(m.seq_data) for m in metadata) <= self.max_num_seqs
        may_run = sum(group.get_max_num_running_seqs() for group in self.scheduler.running)
        assert may_run <= self.max_num_seqs, f"{may_run} sequences may run, max_num_seqs is {self.max_num_seqs}"
        assert outputs.num_prefill_groups in (0, len(metadata)), "a step is prompts or decodes"

    def check_order(self, waiting, running, swapped, scheduled, outputs):
        left = list(self.scheduler.waiting)
        gone = [group for group in waiting if group not in left]
        assert gone == waiting[: len(gone)], "somebody was overtaken in the waiting queue"
        ended = outputs.ignored_seq_groups + outputs.aborted_seq_groups
        if outputs.num_prefill_groups:
            assert not swapped
            assert scheduled == [group for group in gone if group not in ended]
            return
        came_back = [group for group in scheduled if group in swapped]
        assert not came_back or not (outputs.preempted or outputs.aborted_seq_groups)
        by_age = sorted(swapped, key=lambda group: group.arrival_time)
        gone = [group for group in by_age if group not in self.scheduler.swapped]
        assert gone == by_age[: len(gone)], "somebody was overtaken in the swapped queue"
        back = [group for group in left if group not in waiting]
        assert left[: len(back)] == back, "recomputed requests come back at the front"
        if self.scheduler.scheduler_config.policy == "fcfs":
            assert [g.arrival_time for g in back] == sorted(g.arrival_time for g in back)

    def check_victims(self, running, length_of, scheduled):
        """The newest make room, so that the oldest runs; or the longest of those who are younger than who needs it."""
        by_age = sorted(running, key=lambda group: group.arrival_time)
        kept = [group for group in by_age if group in scheduled]
        if self.scheduler.scheduler_config.policy == "fcfs":
            assert kept == by_age[: len(kept)], "somebody had to make room for a younger one"
            return
        assert kept[:1] == by_age[:1] or not kept, "the oldest had to make room for a younger one"
        for i, victim in enumerate(by_age):
            spared = [group for group in by_age[i + 1 :] if group in kept] if victim not in kept else []
            assert all(length_of[group] <= length_of[victim] for group in spared), "a longer one was spared"

    def has_room(self, group, status, num_tokens, num_batched_tokens):
        may_run = sum(other.get_max_num_running_seqs() for other in self.scheduler.running)
        return (
            status == "OK"
            and num_batched_tokens + num_tokens <= self.token_budget
            and may_run + group.get_max_num_running_seqs() <= self.max_num_seqs
        )

    def admission(self, group):
        """The model's answer for a group that waits, and the tokens of its prompt."""
        tokens = tokens_of(group.get_seqs(Status.WAITING)[0])
        return self.manager.model.can_allocate([(None, tokens)]), len(tokens)

    def return_of(self, group):
        """The model's answer for a group that is swapped out, and the tokens that it computes in its first step."""
        num_swapped = group.num_seqs(Status.SWAPPED)
        return self.manager.model.can_swap_in(ids(group.get_unfinished_seqs()), num_swapped), num_swapped

    def admissible_head(self):
        """The first that waits, if the next step has to run it."""
        if self.scheduler.swapped or not self.scheduler.waiting:
            return None
        head = self.scheduler.waiting[0]
        status, num_tokens = self.admission(head)
        return head if num_tokens <= self.max_len and self.has_room(head, status, num_tokens, 0) else None

    def hopeless(self):
        """The groups that could not run even alone."""
        asked = [(group, *self.admission(group)) for group in self.scheduler.waiting]
        waiting = {group for group, status, num_tokens in asked if status == "NEVER" or num_tokens > self.max_len}
        return waiting | {group for group in self.scheduler.swapped if self.return_of(group)[0] == "NEVER"}

    def check_nobody_forgotten(self, outputs):
        """Whoever is first of those left behind had no room."""
        tokens = outputs.num_batched_tokens
        if outputs.num_prefill_groups and self.scheduler.waiting:
            head = self.scheduler.waiting[0]
            assert not self.has_room(head, *self.admission(head), tokens), "a prompt that had room was left"
        nobody_made_room = not (outputs.preempted or outputs.aborted_seq_groups)
        if not outputs.num_prefill_groups and self.scheduler.swapped and nobody_made_room:
            head = self.scheduler.swapped[0]
            assert not self.has_room(head, *self.return_of(head), tokens), "a swapped group that had room was left"

    def check_progress(self, outputs):
        self.steps_left -= 1
        assert self.steps_left >= 0, "more steps than the requests can need"
        ended = outputs.ignored_seq_groups or outputs.aborted_seq_groups
        idle = not outputs.scheduled_seq_groups and not ended and bool(self.unfinished())
        self.idle_steps = self.idle_steps + 1 if idle else 0
        assert self.idle_steps < 2, "two steps in a row in which nothing ran and nothing ended"
        if not self.unfinished():
            self.steps_left += 1  # a step with nothing to do is not one of theirs

    def check_queues(self):
        for group in self.groups:
            places = sum(group in queue for queue in self.queues())
            assert places == (0 if group.is_finished() else 1), f"{group} stands in {places} queues"
        queued = [Status.WAITING, Status.RUNNING, Status.SWAPPED]
        for status, queue in zip(queued, self.queues(), strict=True):
            for group in queue:
                assert {seq.status for seq in group.get_unfinished_seqs()} == {status}
        owners = [seq.seq_id for group in self.groups for seq in group.get_unfinished_seqs()]
        assert set(self.manager.block_tables) <= set(owners), "somebody who has ended keeps blocks"

    def teardown(self):
        if not self.sound:
            return
        while self.scheduler.has_unfinished_seqs():
            self.step()
        assert not self.unfinished()
        assert_all_free(self.manager)


class CachingSchedulerMachine(SchedulerMachine):
    caching = True


def set_status(group, before, after):
    for seq in group.get_seqs(before):
        seq.status = after


def assert_all_free(manager):
    assert manager.block_tables == {}
    for allocator in (manager.gpu_allocator, manager.cpu_allocator):
        assert allocator.get_num_free_blocks() == allocator.get_num_total_blocks()


TestManager = ManagerMachine.TestCase
TestCachingManager = CachingManagerMachine.TestCase
TestScheduler = SchedulerMachine.TestCase
TestCachingScheduler = CachingSchedulerMachine.TestCase


@pytest.mark.parametrize("length", [4, 5, 8, 9])
@pytest.mark.parametrize("mode", ["recompute", "swap"])
@pytest.mark.parametrize("machine_class", [SchedulerMachine, CachingSchedulerMachine])
def test_preempted_at_a_block_boundary_and_back(machine_class, mode, length):
    """D3: at B, B + 1, 2B and 2B + 1 tokens, the newest not computed yet; what comes back reads its own tokens."""
    old_prompt = [7] * (-length % 4 + 4)  # opens a block just when the young sequence has `length` tokens
    num_blocks = num_required_blocks(len(old_prompt) + length - 3, 4) + num_required_blocks(length - 1, 4)
    machine = machine_class()
    machine.build(4, num_blocks, num_blocks, 0, mode, "fcfs", max_num_seqs=4, max_blocks=6, spare_tokens=0, seed=1)
    machine.early_end = 0
    machine.add(old_prompt, n=1, output=length)
    (young,) = machine.add([1, 2, 3], n=1, output=length).seqs
    machine.step()
    while young.status is Status.RUNNING:
        machine.step()
    assert young.get_len() == length
    assert young.status is (Status.WAITING if mode == "recompute" else Status.SWAPPED)
    while young.status is not Status.RUNNING:
        machine.step()
    assert young.get_len() == length + 1
    assert len(machine.manager.get_block_table(young)) == num_required_blocks(length, 4)
    machine.teardown()
    assert young.get_output_len() == length


def test_the_machines_met_everything():
    """A machine that never runs out of blocks, or never meets a known content, would prove nothing."""
    if not CALLS:
        pytest.skip("the state machines above were not run in this session")
    scheduler = ("prefill", "wait", "ignore", "recompute", "swap out", "swap in", "abort")
    manager = (
        "refusal",
        "copy on write",
        "eviction",
        "hit on a free block",
        "promotion in place",
        "promotion to a known block",
        "content key given up",
        "prefix not computed again",
        "block swapped to CPU",
        "block swapped to GPU",
    )
    missing = [event for event in (*manager, *(f"scheduler: {action}" for action in scheduler)) if EVENTS[event] < 10]
    assert not missing, f"happened fewer than 10 times: {missing}"

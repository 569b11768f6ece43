"""One list of entries with a state and a place in line; the queues are what is seen of it through a filter.

A step is a plan that is made entry by entry, in one loop over those who might run, and it is carried out on the way.
"""

import itertools
from collections import deque
from dataclasses import dataclass

from refimpl import AllocStatus, BlockSpaceManager, ScheduledSequenceGroup, SchedulerOutputs, SequenceGroupMetadata
from refimpl import SequenceStatus as Status

WAITS, RUNS, AWAY = "waits", "runs", "away"
STATUS = {WAITS: Status.WAITING, RUNS: Status.RUNNING, AWAY: Status.SWAPPED}


@dataclass
class Entry:
    group: object
    state: str
    place: tuple  # entries of one state stand in the order of their places

    @property
    def arrival(self):
        return self.group.arrival_time

    @property
    def seqs(self):
        return self.group.get_seqs(STATUS[self.state])


class Scheduler:
    def __init__(self, scheduler_config, cache_config, block_manager=None):
        self.limits = scheduler_config
        if block_manager is None:
            block_manager = BlockSpaceManager(
                cache_config.block_size,
                cache_config.num_gpu_blocks,
                cache_config.num_cpu_blocks,
                enable_caching=cache_config.enable_prefix_caching,
            )
        self.block_manager = block_manager
        self.entries = []
        self.turns = itertools.count()
        self.num_steps = 0

    def having(self, state):
        return sorted((entry for entry in self.entries if entry.state == state), key=lambda entry: entry.place)

    waiting = property(lambda self: deque(entry.group for entry in self.having(WAITS)))
    running = property(lambda self: deque(entry.group for entry in self.having(RUNS)))
    swapped = property(lambda self: deque(entry.group for entry in self.having(AWAY)))

    def add_seq_group(self, group):
        if group.get_max_num_running_seqs() > self.limits.max_num_seqs:
            raise ValueError(f"{group.request_id} wants more sequences than a step holds")
        if not all(seq.get_len() for seq in group.seqs):
            raise ValueError(f"{group.request_id} has an empty prompt")
        self.entries.append(Entry(group, WAITS, (1, next(self.turns))))

    def abort_seq_group(self, request_id):
        for entry in [entry for entry in self.entries if entry.group.request_id == request_id]:
            self.finish(entry, Status.FINISHED_ABORTED)

    def has_unfinished_seqs(self):
        return bool(self.entries)

    def fork_seq(self, parent, child):
        self.block_manager.fork(parent, child)

    def free_seq(self, seq):
        self.block_manager.free(seq)

    def free_finished_seq_groups(self):
        self.entries = [entry for entry in self.entries if not entry.group.is_finished()]

    def finish(self, entry, status):
        for seq in entry.group.get_unfinished_seqs():
            self.block_manager.free(seq)
            seq.status = status
        self.entries.remove(entry)

    def move(self, entry, state, front=False):
        for seq in entry.seqs:
            seq.status = STATUS[state]
        entry.state = state
        entry.place = (0, -self.num_steps, entry.arrival) if front else (1, next(self.turns))

    def schedule(self, now=None):
        self.free_finished_seq_groups()
        self.num_steps += 1
        self.plan = SchedulerOutputs()
        self.seqs_left = self.limits.max_num_seqs
        self.seqs_left -= sum(entry.group.get_max_num_running_seqs() for entry in self.having(RUNS))
        away = any(entry.state == AWAY for entry in self.entries)
        turns = [self.take_prompt] * (not away) + [self.grow_all, self.take_back]
        for turn in turns:
            turn()
            plan = self.plan
            if plan.num_prefill_groups or plan.preempted or plan.aborted_seq_groups:
                break
        told = [self.tell(entry, place, now or 0.0) for place, entry in enumerate(plan.scheduled_seq_groups)]
        for entry in plan.scheduled_seq_groups:
            self.block_manager.mark_blocks_as_computed(entry.seq_group)
        return told, plan

    def room_for(self, num_tokens, num_seqs):
        return self.plan.num_batched_tokens + num_tokens <= self.limits.max_num_batched_tokens and (
            num_seqs <= self.seqs_left
        )

    def run(self, entry, num_tokens, chunk, num_seqs=0):
        self.plan.num_batched_tokens += num_tokens
        self.seqs_left -= num_seqs
        self.plan.scheduled_seq_groups.append(ScheduledSequenceGroup(entry.group, chunk))

    def take_prompt(self):
        longest = min(self.limits.max_model_len, self.limits.max_num_batched_tokens)
        for entry in self.having(WAITS):
            length, wanted = entry.seqs[0].get_len(), entry.group.get_max_num_running_seqs()
            answer = AllocStatus.NEVER if length > longest else self.block_manager.can_allocate(entry.group)
            if answer is AllocStatus.NEVER:
                self.finish(entry, Status.FINISHED_IGNORED)
                self.plan.ignored_seq_groups.append(entry.group)
            elif answer is AllocStatus.OK and self.room_for(length, wanted):
                self.block_manager.allocate(entry.group)
                self.move(entry, RUNS)
                self.run(entry, length, length, wanted)
                self.plan.num_prefill_groups += 1
            else:
                return

    def grow_all(self):
        line = sorted(self.having(RUNS), key=lambda entry: entry.arrival)
        for entry in line:
            entry.place = (1, next(self.turns))
        for entry in line:
            victims = [other for other in line[line.index(entry) :] if other.state == RUNS and other in self.entries]
            while victims and not self.block_manager.can_append_slots(entry.group):
                self.make_room(victims.pop())
            if entry in victims:
                self.grow(entry)
                self.run(entry, len(entry.seqs), 1)

    def grow(self, entry):
        for seq in entry.seqs:
            self.plan.blocks_to_copy.extend(self.block_manager.append_slots(seq))

    def make_room(self, entry):
        group, mode = entry.group, self.limits.preemption_mode
        alone = group.num_unfinished_seqs() == 1 and (mode or group.get_max_num_running_seqs() == 1)
        if alone and mode != "swap":
            (seq,) = group.get_unfinished_seqs()
            self.block_manager.free(seq)
            seq.num_computed_tokens = 0
            self.move(entry, WAITS, front=True)
        elif self.block_manager.can_swap_out(group):
            self.plan.blocks_to_swap_out.extend(self.block_manager.swap_out(group))
            self.move(entry, AWAY)
        else:
            self.finish(entry, Status.FINISHED_ABORTED)
            self.plan.aborted_seq_groups.append(group)
            return
        self.plan.preempted += 1

    def take_back(self):
        line = sorted(self.having(AWAY), key=lambda entry: entry.arrival)
        for entry in line:
            entry.place = (1, next(self.turns))
        for entry in line:
            num_seqs, wanted = len(entry.seqs), entry.group.get_max_num_running_seqs()
            answer = self.block_manager.can_swap_in(entry.group)
            if answer is AllocStatus.NEVER:
                self.finish(entry, Status.FINISHED_IGNORED)
                self.plan.ignored_seq_groups.append(entry.group)
            elif answer is AllocStatus.OK and self.room_for(num_seqs, wanted) and not self.copies_in_danger():
                self.plan.blocks_to_swap_in.extend(self.block_manager.swap_in(entry.group))
                self.move(entry, RUNS)
                self.grow(entry)
                self.run(entry, num_seqs, 1, wanted)
            else:
                return

    def copies_in_danger(self):
        held = {
            (block.device.name, block.block_number)
            for table in self.block_manager.block_tables.values()
            for block in table
        }
        return any(("GPU", source) not in held for source, _ in self.plan.blocks_to_copy)

    def tell(self, scheduled, place, now):
        seqs = scheduled.seq_group.get_seqs(Status.RUNNING)
        for seq in seqs:
            self.block_manager.access_all_blocks_in_seq(seq, now)
        return SequenceGroupMetadata(
            scheduled.seq_group.request_id,
            place < self.plan.num_prefill_groups,
            {seq.seq_id: seq for seq in seqs},
            {seq.seq_id: self.block_manager.get_block_table(seq) for seq in seqs},
            self.block_manager.get_common_computed_block_ids(seqs),
            scheduled.token_chunk_size,
        )

"""A job a request, each in its own object; the batch is built by walking positions, and numpy holds it."""

from dataclasses import dataclass, field

import numpy as np

from refimpl import Sequence, SequenceGroup, SequenceStatus


@dataclass
class Work:
    token_ids: np.ndarray
    positions: range
    slots: np.ndarray
    block_table: tuple


@dataclass
class Reply:
    token_ids: tuple = ()
    error: str | None = None


@dataclass
class Job:
    group: SequenceGroup
    has_forked: bool = False
    over: bool = False
    owners: list = field(default_factory=list)


class Engine:
    def __init__(self, scheduler, worker, max_model_len):
        self.scheduler, self.worker, self.longest = scheduler, worker, max_model_len
        self.size = worker.block_size
        self.jobs = {}
        self.errors = {}
        self.ids = iter(range(500, 10**9, 3))

    def add_request(self, prompt_token_ids, sampling_params):
        seq = Sequence(next(self.ids), prompt_token_ids, self.size)
        group = SequenceGroup(f"job {seq.seq_id}", [seq], sampling_params, arrival_time=seq.seq_id)
        self.scheduler.add_seq_group(group)
        self.jobs[group.request_id] = Job(group)
        return group

    def prepare(self, data):
        return tuple(self.work_of(data, seq) for seq in data.seq_data.values())

    def work_of(self, data, seq):
        held = self.size * len(data.computed_block_nums) if data.is_prompt else seq.get_len() - 1
        positions = range(held, seq.get_len())
        table = np.array(data.block_tables[seq.seq_id])
        where = np.arange(held, seq.get_len())
        slots = table[where // self.size] * self.size + where % self.size
        return Work(np.array(seq.get_token_ids())[where], positions, slots, tuple(table))

    def step(self):
        metadata, outputs = self.scheduler.schedule()
        for move in ("swap_in", "swap_out", "copy"):
            pairs = getattr(outputs, f"blocks_to_{move}")
            if pairs:
                getattr(self.worker, move)(pairs)
        order = [(self.jobs[data.request_id], seq) for data in metadata for seq in data.seq_data.values()]
        if order:
            rows = self.worker.forward([work for data in metadata for work in self.prepare(data)])
            for (job, seq), row in zip(order, rows, strict=True):
                for owner in [seq, *self.children(job, seq)]:
                    self.grow(job.group.sampling_params, owner, self.worker.sample(row, job.group, owner))
        for group in (*outputs.ignored_seq_groups, *outputs.aborted_seq_groups):
            reasons = {decision.request_id: decision.reason for decision in outputs.decisions}
            self.errors[group.request_id] = "it was given up: " + reasons[group.request_id]
        ended = {job.group for job in self.jobs.values() if job.group.is_finished() and not job.over}
        for group in ended:
            self.jobs[group.request_id].over = True
        self.scheduler.free_finished_seq_groups()
        return ended

    def children(self, job, seq):
        if job.has_forked:
            return
        job.has_forked = True
        parent = seq.fork(seq.seq_id)  # as it was before its first token
        born = [parent.fork(next(self.ids)) for _ in range(job.group.sampling_params.n - 1)]
        for child in born:
            job.group.add(child)
            self.scheduler.fork_seq(parent, child)
        yield from born

    def grow(self, params, seq, token):
        seq.append_token_id(token)
        full = seq.get_output_len() == params.max_tokens
        full |= seq.get_len() >= self.longest
        if not params.ignore_eos and token in self.worker.eos_token_ids:
            seq.status = SequenceStatus.FINISHED_STOPPED
        elif full:
            seq.status = SequenceStatus.FINISHED_LENGTH_CAPPED
        if full or seq.is_finished():
            self.scheduler.free_seq(seq)

    def generate(self, prompts, sampling_params):
        asked = [self.add_request(*each) for each in zip(prompts, sampling_params, strict=True)]
        while self.scheduler.has_unfinished_seqs():
            self.step()
        replies = []
        for group in asked:
            tokens = tuple(tuple(seq.output_token_ids) for seq in group.get_seqs())
            replies.append(Reply(tokens, self.errors.pop(group.request_id, None)))
        return replies

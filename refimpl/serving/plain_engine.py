"""A small engine, as chapter 11 builds it: a scheduler's decisions in, tokens out.

It owns neither memory nor model. The scheduler says what runs and where it lies, a worker moves blocks, computes and
draws; what lies between is all here: what each sequence has to compute, in which order a step is carried out, and when
an answer ends. `LLMEngine` does the same with texts, metrics and a log.
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from typing import Any, Protocol

from refimpl.scheduler import Scheduler, SchedulerOutputs, SequenceGroupMetadata
from refimpl.sequence import SamplingParams, Sequence, SequenceGroup, SequenceStatus

Pairs = list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class NewTokens:
    """What one sequence computes in one step: those of its tokens that the cache does not hold yet.

    token_ids, positions, slots: one of each for every new token, in order. block_table: the sequence's block numbers,
    through which the new tokens read everything up to their own positions.
    """

    token_ids: list[int]
    positions: list[int]
    slots: list[int]
    block_table: list[int]


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of one prompt: the tokens of each of its n continuations, and an error if they ended early."""

    token_ids: list[list[int]]
    error: str | None = None


class StepWorker(Protocol):
    """What carries out a step. Whatever a row is, only the worker looks into it."""

    block_size: int
    eos_token_ids: SequenceOf[int]

    def swap_in(self, pairs: Pairs) -> None:
        """Copy blocks from the CPU pool to the GPU pool: (CPU block, GPU block)."""

    def swap_out(self, pairs: Pairs) -> None:
        """Copy blocks from the GPU pool to the CPU pool: (GPU block, CPU block)."""

    def copy(self, pairs: Pairs) -> None:
        """Copy blocks inside the GPU pool: (source, destination)."""

    def forward(self, batch: list[NewTokens]) -> list[Any]:
        """Compute the new tokens; for each sequence of the batch a row: what may follow its last token."""

    def sample(self, row: Any, group: SequenceGroup, seq: Sequence) -> int:
        """The next token of `seq`, which is one of the group's sequences, drawn from a row."""


class Engine:
    """Runs requests a step at a time. Invariant: between steps, all tokens of a running sequence but its newest are
    in the cache.

    Owns `errors`, request_id -> why the scheduler gave a request up.

    Args:
        scheduler: decides; its queues hold the requests.
        worker: moves blocks, computes and draws.
        max_model_len: tokens a sequence, prompt and output together.

    Source: vLLM 0.5.4, `vllm/engine/llm_engine.py`, `LLMEngine.step`, and `vllm/worker/model_runner.py`.
    """

    def __init__(self, scheduler: Scheduler, worker: StepWorker, max_model_len: int) -> None:
        self.scheduler = scheduler
        self.worker = worker
        self.block_size = worker.block_size
        self.max_model_len = max_model_len
        self.errors: dict[str, str] = {}
        self.num_seqs = 0  # so far, which is the next seq_id

    def add_request(self, prompt_token_ids: list[int], sampling_params: SamplingParams) -> SequenceGroup:
        """Queue a request. ValueError for one that the scheduler refuses."""
        seq = Sequence(self.num_seqs, prompt_token_ids, self.block_size)
        group = SequenceGroup(str(seq.seq_id), [seq], sampling_params, arrival_time=float(seq.seq_id))
        self.scheduler.add_seq_group(group)
        self.num_seqs += 1
        return group

    def fork(self, group: SequenceGroup, parent: Sequence) -> Sequence:
        """One more sequence for the group: it has the parent's tokens and shares all of the parent's blocks."""
        child = parent.fork(self.num_seqs)
        group.add(child)
        self.scheduler.fork_seq(parent, child)
        self.num_seqs += 1
        return child

    def prepare(self, data: SequenceGroupMetadata) -> list[NewTokens]:
        """What each sequence of a scheduled group has to compute: a prompt's tokens behind its cached blocks, or the
        newest token alone.
        """
        batch = []
        for seq_id, seq in data.seq_data.items():
            start = len(data.computed_block_nums) * self.block_size if data.is_prompt else seq.get_len() - 1
            positions = list(range(start, seq.get_len()))
            block_table = data.block_tables[seq_id]
            slots = [block_table[p // self.block_size] * self.block_size + p % self.block_size for p in positions]
            batch.append(NewTokens(seq.get_token_ids(start), positions, slots, block_table))
        return batch

    def step(self) -> list[SequenceGroup]:
        """One step: what the scheduler decides is carried out, and every sequence that ran has one token more.

        Returns:
            The requests that ended in this step, those among them that the scheduler gave up; `errors` says why.
        """
        metadata, outputs = self.scheduler.schedule()
        self.worker.swap_in(outputs.blocks_to_swap_in)
        self.worker.swap_out(outputs.blocks_to_swap_out)
        self.worker.copy(outputs.blocks_to_copy)
        rows = iter(self.worker.forward([new_tokens for data in metadata for new_tokens in self.prepare(data)]))
        for scheduled, data in zip(outputs.scheduled_seq_groups, metadata, strict=True):
            for seq in data.seq_data.values():
                self._draw(scheduled.seq_group, seq, next(rows))
        self.scheduler.free_finished_seq_groups()
        given_up = outputs.ignored_seq_groups + outputs.aborted_seq_groups
        for group in given_up:
            self.errors[group.request_id] = why_given_up(outputs, group)
        return given_up + [s.seq_group for s in outputs.scheduled_seq_groups if s.seq_group.is_finished()]

    def _draw(self, group: SequenceGroup, seq: Sequence, row: Any) -> None:
        """The next token of `seq`; behind a prompt that has several answers, the first token of each of them."""
        params = group.sampling_params or SamplingParams()
        seqs = [seq]
        if group.num_seqs() == 1:
            seqs += [self.fork(group, seq) for _ in range(params.n - 1)]
        for each in seqs:
            self._append(each, self.worker.sample(row, group, each), params)

    def _append(self, seq: Sequence, new_token: int, params: SamplingParams) -> None:
        """The token joins the sequence; a sequence that ends with it gets its status and lets go of its blocks."""
        seq.append_token_id(new_token)
        if new_token in self.worker.eos_token_ids and not params.ignore_eos:
            seq.status = SequenceStatus.FINISHED_STOPPED
        elif seq.get_output_len() >= params.max_tokens or seq.get_len() >= self.max_model_len:
            seq.status = SequenceStatus.FINISHED_LENGTH_CAPPED
        if seq.is_finished():
            self.scheduler.free_seq(seq)

    def generate(self, prompts: list[list[int]], sampling_params: list[SamplingParams]) -> list[Answer]:
        """Answer every prompt, all of them at once.

        Args:
            prompts: the token ids of each.
            sampling_params: one for each prompt.

        Returns:
            An answer for each prompt, in their order; `error` says why one could not run to its end.
        """
        groups = [self.add_request(*request) for request in zip(prompts, sampling_params, strict=True)]
        while self.scheduler.has_unfinished_seqs():
            self.step()
        return [
            Answer([seq.output_token_ids for seq in group.get_seqs()], self.errors.get(group.request_id))
            for group in groups
        ]


def why_given_up(outputs: SchedulerOutputs, group: SequenceGroup) -> str:
    """The reason, among a step's outputs, why the scheduler ended a group that could not run, or not be saved."""
    reasons = [decision.reason for decision in outputs.decisions if decision.request_id == group.request_id]
    return reasons[-1] if reasons else "the scheduler gave it up"

"""What chapter 11 plays an engine on: a cache that holds notes, and what each request would answer alone.

In place of keys and values a slot holds (token, position). What follows a sequence is worked out from the notes that
are read through its block table, so a token that was skipped, a slot that is wrong, a copy that came too late or never
gives another token. The account knows nothing of memory: an answer is a function of its request.
"""

from __future__ import annotations

import operator
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from refimpl.block_manager import AllocStatus
from refimpl.config import CacheConfig, SchedulerConfig
from refimpl.scheduler import Scheduler, SchedulerOutputs, SequenceGroupMetadata
from refimpl.sequence import SamplingParams, SequenceGroup, SequenceStatus
from refimpl.sequence import Sequence as Seq

END_TOKENS = (7, 8)
MOST_IDLE_STEPS = 20  # after the last request has ended

Note = tuple[int, int]
Pairs = list[tuple[int, int]]


class Idle(Exception):
    """The engine goes on asking for steps although nothing is left to do."""


def next_token(context: Sequence[Note | None], index: int) -> int:
    """What answer `index` of a request goes on with behind these notes.

    >>> next_token([(5, 0), (6, 1)], 0) == next_token([(5, 0), (6, 2)], 0)
    False
    """
    number = zlib.crc32(repr((tuple(context), index)).encode())
    return END_TOKENS[number // 7 % 2] if number % 7 == 0 else 100 + number % 900


def notes(token_ids: Iterable[int]) -> list[Note]:
    """What the cache holds of these tokens when it is right."""
    return [(token, position) for position, token in enumerate(token_ids)]


def alone(prompt: list[int], params: SamplingParams, index: int, max_model_len: int) -> list[int]:
    """The tokens of answer `index` of a request with these `params` that has no others and no memory to think of."""
    token_ids = list(prompt)
    while True:
        token_ids.append(next_token(notes(token_ids), index))
        stopped = token_ids[-1] in END_TOKENS and not params.ignore_eos
        if stopped or len(token_ids) - len(prompt) >= params.max_tokens or len(token_ids) >= max_model_len:
            return token_ids[len(prompt) :]


@dataclass(frozen=True, slots=True)
class Row:
    """What one sequence of a batch has read."""

    read: tuple[Note | None, ...]


class NotingWorker:
    """Both pools, slot -> note, and what was called in the current step."""

    eos_token_ids = END_TOKENS

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.gpu: dict[int, Note | None] = {}
        self.cpu: dict[int, Note | None] = {}
        self.calls: list[tuple[str, Pairs]] = []
        self.sampled: list[tuple[Seq, Row]] = []

    def swap_in(self, pairs: Pairs) -> None:
        """From the CPU pool to the GPU pool."""
        self._move("swap_in", self.cpu, self.gpu, pairs)

    def swap_out(self, pairs: Pairs) -> None:
        """From the GPU pool to the CPU pool."""
        self._move("swap_out", self.gpu, self.cpu, pairs)

    def copy(self, pairs: Pairs) -> None:
        """Inside the GPU pool."""
        self._move("copy", self.gpu, self.gpu, pairs)

    def _move(
        self, name: str, source: dict[int, Note | None], destination: dict[int, Note | None], pairs: Pairs
    ) -> None:
        """All pairs at once, each block as a whole; of several with one destination the last counts."""
        pairs = [(operator.index(here), operator.index(there)) for here, there in pairs]
        self.calls.append((name, pairs))
        moved = {there: [source.get(slot) for slot in self._slots(here)] for here, there in pairs}
        for block, content in moved.items():
            destination.update(zip(self._slots(block), content, strict=True))

    def _slots(self, block: int) -> range:
        return range(block * self.block_size, (block + 1) * self.block_size)

    def forward(self, batch: Iterable[Any]) -> list[Row]:
        """Prompts one after the other; single tokens are all written before the first of them reads."""
        listed = list(batch)
        self.calls.append(("forward", []))
        together = all(len(new.token_ids) == 1 for new in listed)
        for new in listed if together else ():
            self._write(new)
        rows = []
        for new in listed:
            if not together:
                self._write(new)
            rows.append(Row(tuple(self._read(new))))
        return rows

    def _write(self, new: Any) -> None:
        for token, position, slot in zip(new.token_ids, new.positions, new.slots, strict=True):
            self.gpu[operator.index(slot)] = operator.index(token), operator.index(position)

    def _read(self, new: Any) -> Iterable[Note | None]:
        for position in range(operator.index(new.positions[-1]) + 1):
            block, offset = divmod(position, self.block_size)
            yield self.gpu.get(operator.index(new.block_table[block]) * self.block_size + offset)

    def sample(self, row: Row, group: SequenceGroup, seq: Seq) -> int:
        """The token that `seq`, one of the group's, goes on with behind its `row`.

        Raises:
            ValueError: for a sequence of another group.
        """
        self.sampled.append((seq, row))
        found = [index for index, each in enumerate(group.get_seqs()) if each is seq]
        if not found:
            raise ValueError(f"sequence {seq.seq_id} is not in request {group.request_id}")
        return next_token(row.read, found[0])


@dataclass(frozen=True, slots=True)
class Decided:
    """One step as the scheduler gave it out: its `outputs`, and who is `scheduled` with which of its sequences."""

    outputs: SchedulerOutputs
    scheduled: list[tuple[SequenceGroup, list[Seq]]]


class RecordingScheduler(Scheduler):
    """The reference's, and a record of what it was asked and what it said."""

    def __init__(self, scheduler_config: SchedulerConfig, cache_config: CacheConfig) -> None:
        super().__init__(scheduler_config, cache_config)
        self.steps: list[Decided] = []
        self.arrivals: list[tuple[SequenceGroup, int]] = []  # each request, and the number of steps before it
        self.num_idle = 0  # steps since nothing was left

    def add_seq_group(self, seq_group: SequenceGroup) -> None:
        """As the reference's."""
        super().add_seq_group(seq_group)
        self.arrivals.append((seq_group, len(self.steps)))

    def schedule(self, now: float | None = None) -> tuple[list[SequenceGroupMetadata], SchedulerOutputs]:
        """As the reference's, on a clock that counts steps. Idle when nothing has been left for long."""
        self.num_idle = 0 if self.has_unfinished_seqs() else self.num_idle + 1
        if self.num_idle > MOST_IDLE_STEPS:
            raise Idle(f"nothing had been left to do for {MOST_IDLE_STEPS} steps")
        metadata, outputs = super().schedule(float(len(self.steps)))
        scheduled = [
            (each.seq_group, list(data.seq_data.values()))
            for each, data in zip(outputs.scheduled_seq_groups, metadata, strict=True)
        ]
        self.steps.append(Decided(outputs, scheduled))
        return metadata, outputs


class EagerScheduler(RecordingScheduler):
    """Brings a swapped request back before it looks for victims, so a step may swap in and out."""

    def _schedule(self, now: float) -> SchedulerOutputs:
        came_back: Pairs = []
        if self.swapped and self.block_manager.can_swap_in(self.swapped[0]) is AllocStatus.OK:
            group = self.swapped.popleft()
            came_back = self.block_manager.swap_in(group)
            for seq in group.get_seqs(SequenceStatus.SWAPPED):
                seq.status = SequenceStatus.RUNNING
            self.running.append(group)
        outputs = super()._schedule(now)
        outputs.blocks_to_swap_in = came_back + outputs.blocks_to_swap_in
        return outputs

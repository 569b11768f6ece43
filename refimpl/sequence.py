"""Requests as the memory manager sees them: token ids, a status, and who belongs together.

A `Sequence` knows how many tokens it has, not where they lie; a `SequenceGroup` is one request with all the sequences
that grew from its prompt. Block tables are kept by the block manager, never here.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass


class SequenceStatus(enum.Enum):
    """Where a sequence stands. (vLLM 0.5.4: `vllm/sequence.py`, `SequenceStatus`.)"""

    WAITING = enum.auto()
    RUNNING = enum.auto()
    SWAPPED = enum.auto()
    FINISHED_STOPPED = enum.auto()
    FINISHED_LENGTH_CAPPED = enum.auto()
    FINISHED_ABORTED = enum.auto()
    FINISHED_IGNORED = enum.auto()

    def is_finished(self) -> bool:
        """Whether a sequence of this status has ended, for whatever reason."""
        return self not in (SequenceStatus.WAITING, SequenceStatus.RUNNING, SequenceStatus.SWAPPED)


@dataclass(slots=True)
class SamplingParams:
    """What a request asks of the sampler. (vLLM 0.5.4: `vllm/sampling_params.py`, `SamplingParams`.)

    Args:
        n: how many outputs the caller wants.
        best_of: how many are generated, of which the best n are returned; None means n.
        temperature: 0 is greedy.
        top_p: sample from the smallest set of tokens whose probability reaches this.
        max_tokens: output tokens at most, per output.
        ignore_eos: go on after the end-of-sequence token.
        seed: seed of this request's own random generator; output i of several draws with seed + i.
        stop: one or several texts at which an output ends; the text does not include them.
        stop_token_ids: tokens at which an output ends, beside the model's own.

    Raises:
        ValueError: for a value outside its range, with the value and the range.

    >>> SamplingParams(n=2, best_of=4).num_candidates
    4
    """

    n: int = 1
    best_of: int | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int = 16
    ignore_eos: bool = False
    seed: int | None = None
    stop: str | SequenceOf[str] = ()
    stop_token_ids: SequenceOf[int] = ()

    def __post_init__(self) -> None:
        self.stop = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)
        if not all(isinstance(text, str) and text for text in self.stop):
            raise ValueError(f"stop is {self.stop!r}, it must be one or several texts of 1 character or more")
        if isinstance(self.stop_token_ids, int) or not all(type(token) is int for token in self.stop_token_ids):
            raise ValueError(f"stop_token_ids is {self.stop_token_ids!r}, it must be a list of whole numbers")
        self.stop_token_ids = tuple(self.stop_token_ids)
        for name in ("n", "best_of", "max_tokens"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int) and value >= 1):
                raise ValueError(f"{name} is {value}, it must be a whole number of 1 or more")
        if self.best_of is not None and self.best_of < self.n:
            raise ValueError(f"best_of is {self.best_of}, it must be n ({self.n}) or more")
        if not 0 <= self.temperature < math.inf:
            raise ValueError(f"temperature is {self.temperature}, it must be 0 or more, and finite")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p is {self.top_p}, it must be above 0 and at most 1")

    @property
    def num_candidates(self) -> int:
        """How many sequences are generated: best_of, or n where best_of was left out."""
        return self.n if self.best_of is None else self.best_of


class Sequence:
    """One stream of tokens: a prompt and what has been generated after it.

    `len` counts every token that is known, the newest one included; `num_computed_tokens` counts those whose keys and
    values are in the cache. After a decode step the newest token is known and not yet computed.

    Args:
        seq_id: unique among all sequences of a manager.
        prompt_token_ids: non-negative ints.
        block_size: tokens a block.

    Raises:
        ValueError: for a token id that is not a non-negative int, or a block size below 1.

    >>> seq = Sequence(0, prompt_token_ids=[7, 8, 9], block_size=2)
    >>> seq.append_token_id(5)
    >>> seq.get_token_ids(), seq.get_output_len(), seq.n_blocks
    ([7, 8, 9, 5], 1, 2)

    Source: vLLM 0.5.4, `vllm/sequence.py`, `Sequence` and `SequenceData`; `Request` in today's vLLM.
    """

    __slots__ = ("seq_id", "block_size", "status", "num_computed_tokens", "_token_ids", "_prompt_len")

    def __init__(self, seq_id: int, prompt_token_ids: Iterable[int], block_size: int) -> None:
        if block_size < 1:
            raise ValueError(f"block_size is {block_size}, it must be 1 or more")
        self._token_ids = list(prompt_token_ids)
        _check_token_ids(self._token_ids)
        self._prompt_len = len(self._token_ids)
        self.seq_id = seq_id
        self.block_size = block_size
        self.status = SequenceStatus.WAITING
        self.num_computed_tokens = 0

    @property
    def n_blocks(self) -> int:
        """Logical blocks that the sequence's tokens fill, the newest token included."""
        return (len(self._token_ids) + self.block_size - 1) // self.block_size  # num_required_blocks, on the hot path

    @property
    def prompt_token_ids(self) -> list[int]:
        """The prompt's tokens, a copy."""
        return self._token_ids[: self._prompt_len]

    @property
    def output_token_ids(self) -> list[int]:
        """The generated tokens, a copy."""
        return self._token_ids[self._prompt_len :]

    def get_len(self) -> int:
        """Tokens in all, prompt and output."""
        return len(self._token_ids)

    def get_prompt_len(self) -> int:
        """Tokens of the prompt."""
        return self._prompt_len

    def get_output_len(self) -> int:
        """Tokens generated so far."""
        return len(self._token_ids) - self._prompt_len

    def get_token_ids(self, start: int = 0) -> list[int]:
        """The tokens from position `start` on, in order, a copy."""
        return self._token_ids[start:]

    def append_token_id(self, token_id: int) -> None:
        """One generated token joins the sequence; its length counts it from now on.

        Raises:
            ValueError: for a token id that is not a non-negative int.
        """
        if type(token_id) is not int or token_id < 0:
            raise ValueError(f"token id is {token_id!r}, it must be an int of 0 or more")
        self._token_ids.append(token_id)

    def fork(self, new_seq_id: int) -> Sequence:
        """A copy with the same tokens and status and the id `new_seq_id`. The block table is the manager's to share."""
        child = Sequence(new_seq_id, (), self.block_size)
        child._token_ids = self._token_ids.copy()
        child._prompt_len = self._prompt_len
        child.status = self.status
        child.num_computed_tokens = self.num_computed_tokens
        return child

    def is_finished(self) -> bool:
        """Whether the sequence has ended, for whatever reason."""
        return self.status.is_finished()

    def reset_state_for_recompute(self) -> None:
        """Forget that anything was computed: the keys and values are gone, the tokens stay."""
        self.num_computed_tokens = 0

    def __repr__(self) -> str:
        return f"Sequence(seq_id={self.seq_id}, status={self.status.name}, len={len(self._token_ids)})"


class SequenceGroup:
    """One request: all the sequences that were forked from its prompt.

    Args:
        request_id: the caller's name for it.
        seqs: at least one sequence, ids distinct.
        sampling_params: what was asked for; None stands for a request without sampling.
        arrival_time: seconds on any clock that the caller keeps to.

    Raises:
        ValueError: without a sequence, or for an id that occurs twice.

    >>> group = SequenceGroup("a", [Sequence(0, [7, 8, 9], block_size=2)], SamplingParams(n=3))
    >>> group.num_seqs(SequenceStatus.WAITING), group.get_max_num_running_seqs()
    (1, 3)

    Source: vLLM 0.5.4, `vllm/sequence.py`, `SequenceGroup`.
    """

    __slots__ = ("request_id", "sampling_params", "arrival_time", "_seqs")

    def __init__(
        self,
        request_id: str,
        seqs: Iterable[Sequence],
        sampling_params: SamplingParams | None = None,
        arrival_time: float = 0.0,
    ) -> None:
        self.request_id = request_id
        self.sampling_params = sampling_params
        self.arrival_time = arrival_time
        self._seqs: dict[int, Sequence] = {}  # seq_id -> sequence, oldest first
        for seq in seqs:
            self.add(seq)
        if not self._seqs:
            raise ValueError(f"request {request_id} has 0 sequences, it needs at least 1")

    @property
    def seqs(self) -> list[Sequence]:
        """Every sequence of the group, finished ones too, oldest first."""
        return list(self._seqs.values())

    def get_seqs(self, status: SequenceStatus | None = None) -> list[Sequence]:
        """The sequences of one status, or all of them."""
        if status is None:
            return list(self._seqs.values())
        return [seq for seq in self._seqs.values() if seq.status is status]

    def get_unfinished_seqs(self) -> list[Sequence]:
        """The sequences that have not ended."""
        return [seq for seq in self._seqs.values() if not seq.is_finished()]

    def num_seqs(self, status: SequenceStatus | None = None) -> int:
        """How many sequences have this status, or how many there are."""
        return len(self.get_seqs(status))

    def num_unfinished_seqs(self) -> int:
        """How many sequences have not ended."""
        return len(self.get_unfinished_seqs())

    def get_max_num_running_seqs(self) -> int:
        """How many sequences may run at once in what is left of this request's life.

        A prompt that has not been forked yet counts as the sequences that it is going to be.
        """
        if self.sampling_params is not None and self.sampling_params.num_candidates > self.num_seqs():
            return self.sampling_params.num_candidates
        return self.num_unfinished_seqs()

    def add(self, seq: Sequence) -> None:
        """A sequence joins the group. ValueError when its id is taken."""
        if seq.seq_id in self._seqs:
            raise ValueError(f"sequence {seq.seq_id} is in request {self.request_id} already")
        self._seqs[seq.seq_id] = seq

    def remove(self, seq_id: int) -> None:
        """The sequence with the id `seq_id` leaves the group. ValueError when it is not in it."""
        if seq_id not in self._seqs:
            raise ValueError(f"sequence {seq_id} is not in request {self.request_id}")
        del self._seqs[seq_id]

    def is_finished(self) -> bool:
        """Whether every sequence of the group has ended."""
        return all(seq.is_finished() for seq in self._seqs.values())

    def __repr__(self) -> str:
        return f"SequenceGroup(request_id={self.request_id}, num_seqs={len(self._seqs)})"


def _check_token_ids(token_ids: list[int]) -> None:
    """ValueError unless every id is a plain non-negative int; two passes in C, since prompts are long."""
    if set(map(type, token_ids)) <= {int} and min(token_ids, default=0) >= 0:
        return
    position, bad = next((i, t) for i, t in enumerate(token_ids) if type(t) is not int or t < 0)
    raise ValueError(f"token id at position {position} is {bad!r}, it must be an int of 0 or more")
